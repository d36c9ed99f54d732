import { useCallback, useLayoutEffect, useRef } from "react";

/** A function that stays the same one and calls the newest, for handlers that memoised parts are given. */
export function useStable<A extends unknown[]>(fn: (...args: A) => void): (...args: A) => void {
  const newest = useRef(fn);
  useLayoutEffect(() => {
    newest.current = fn;
  });
  return useCallback((...args: A) => newest.current(...args), []);
}
