import { createStore } from "../lib/store";

export interface Me {
  username: string;
  admin: boolean;
  csrf: string | null;
}

/**
 * out: nobody is logged in, or it is not known yet. in: as `me` says. expired: the session of
 * `me` ended while the console was open; requests wait until somebody has logged in again.
 */
export interface Session {
  state: "unknown" | "out" | "in" | "expired";
  me: Me | null;
}

export const session = createStore<Session>({ state: "unknown", me: null });

const mark = "tidewire.session";
session.subscribe(() => {
  try {
    if (session.get().state === "in") localStorage.setItem(mark, "1");
    else if (session.get().state === "out") localStorage.removeItem(mark);
  } catch {
    // Without storage the node is asked every time.
  }
});

/**
 * Whether there may be a session: its cookie cannot be seen from here. Only that there was
 * one is remembered, so that a first visit does not begin with a refusal.
 */
export function mayBeLoggedIn(): boolean {
  try {
    return localStorage.getItem(mark) !== null;
  } catch {
    return true;
  }
}

/** Whether the node answered last, and by how much its clock is ahead of this one's (ms). */
export const connection = createStore<{ reachable: boolean; skew: number }>({ reachable: true, skew: 0 });

/** The node's time, as far as this browser can tell. */
export const nodeNow = (): number => Date.now() + connection.get().skew;

/** Resolves once somebody is logged in again, or rejects when the console goes to the login page. */
export function untilLoggedIn(): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = session.subscribe(() => {
      const { state } = session.get();
      if (state === "expired") return;
      stop();
      if (state === "in") resolve();
      else reject(new DOMException("the session ended", "AbortError"));
    });
  });
}
