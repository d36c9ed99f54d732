import createClient from "openapi-fetch";
import { connection, type Me, session, untilLoggedIn } from "../app/session";
import { prefix } from "../lib/prefix";
import { Problem, problemOf } from "./problem";
import type { components, paths } from "./schema.gen";

export type Schemas = components["schemas"];

/** Calls that are about the login itself: their 401 is an answer and no end of a session. */
const aboutLogin = /\/v1\/(auth\/(login|logout|me)|setup)(\?|$)/;

function withToken(request: Request): Request {
  const csrf = session.get().me?.csrf;
  if (csrf && request.method !== "GET" && request.method !== "HEAD") request.headers.set("X-CSRF-Token", csrf);
  return request;
}

/**
 * fetch with the session's CSRF token. Where the session has ended the request waits until
 * somebody has logged in again over the page, and is made and sent once more: a 401 and a
 * 403 "csrf" mean that nothing was applied.
 */
async function attempt(make: () => Request): Promise<Response> {
  const request = withToken(make());
  let answer: Response;
  try {
    answer = await fetch(request);
  } catch (error) {
    if (error instanceof DOMException) throw error;
    connection.set({ ...connection.get(), reachable: false });
    throw new Problem(0, "unreachable", error instanceof Error ? error.message : String(error));
  }
  if (!connection.get().reachable) connection.set({ ...connection.get(), reachable: true });
  if (aboutLogin.test(request.url)) return answer;
  const stale =
    answer.status === 403 &&
    (
      await answer
        .clone()
        .json()
        .catch(() => ({}))
    ).code === "csrf";
  if (answer.status !== 401 && !stale) return answer;
  const { state, me } = session.get();
  // Another tab has logged in anew: the cookie is good, only the token is of the session before.
  if (stale && (await sameAgain())) return fetch(withToken(make()));
  if (state === "in") session.set({ state: "expired", me });
  else if (state !== "expired") return answer;
  await untilLoggedIn();
  return fetch(withToken(make()));
}

/** The same for a request that is made already; its body is kept until it is answered. */
export function send(request: Request): Promise<Response> {
  const spare = request.clone();
  let first = true;
  return attempt(() => {
    const next = first ? request : spare;
    first = false;
    return next;
  });
}

export const api = createClient<paths>({ baseUrl: prefix || window.location.origin, fetch: send });

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of an answer; throws a Problem for a refusal. */
export async function take<T>(call: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await call;
  if (!response.ok) throw problemOf(response.status, error);
  return data as T;
}

/** A call by path, for answers that have more than one media type. */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  // Made anew for a second try, so that a file is read again and not kept in memory.
  const answer = await attempt(() => new Request(new URL(prefix + path, window.location.origin), init));
  if (!answer.ok) throw problemOf(answer.status, await answer.json().catch(() => null));
  return answer;
}

/** Whether the same user is logged in by now, by another tab; this one then goes on with that session. */
export async function sameAgain(): Promise<boolean> {
  const { me } = session.get();
  const now = await whoAmI().catch(() => null);
  if (!now || now.username !== me?.username) return false;
  session.set({ state: "in", me: now });
  return true;
}

export async function whoAmI(): Promise<Me | null> {
  const { data, response, error } = await api.GET("/v1/auth/me");
  if (response.status === 401) return null;
  if (!data) throw problemOf(response.status, error);
  return { username: data.username, admin: data.admin, csrf: data.csrf_token };
}

/** Logs in by cookie. Throws bad-credentials, login-locked, or what else the node says. */
export async function logIn(username: string, password: string): Promise<Me> {
  const { response, error } = await api.POST("/v1/auth/login", {
    params: { query: { session: "cookie" } },
    body: { username, password },
  });
  if (!response.ok) {
    const problem = problemOf(response.status, error);
    const wait = response.headers.get("Retry-After");
    throw wait ? new Problem(problem.status, problem.code, problem.message, { ...problem.body, title: wait }) : problem;
  }
  const me = await whoAmI();
  if (!me) throw new Problem(401, "cookie-refused", "the browser did not keep the session's cookie");
  return me;
}

export async function logOut(): Promise<void> {
  await api.POST("/v1/auth/logout").catch(() => undefined);
  session.set({ state: "out", me: null });
}
