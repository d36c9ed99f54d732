import { useSyncExternalStore } from "react";

/** A value outside of React that components follow. */
export interface Store<T> {
  get(): T;
  set(value: T): void;
  subscribe(listener: () => void): () => void;
}

export function createStore<T>(initial: T): Store<T> {
  let value = initial;
  const listeners = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export const useStore = <T>(store: Store<T>): T => useSyncExternalStore(store.subscribe, store.get);

/** A store of one of a few words that the browser remembers. Nothing secret goes here. */
export function rememberedStore<T extends string>(key: string, words: readonly T[], initial: T): Store<T> {
  let saved: string | null = null;
  try {
    saved = localStorage.getItem(key);
  } catch {
    // Storage may be forbidden; the choice then lasts as long as the page.
  }
  const store = createStore<T>(words.find((word) => word === saved) ?? initial);
  store.subscribe(() => {
    try {
      localStorage.setItem(key, store.get());
    } catch {
      // As above.
    }
  });
  return store;
}
