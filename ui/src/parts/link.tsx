import { Link as RouterLink, useNavigate } from "@tanstack/react-router";
import { type AnchorHTMLAttributes, type FunctionComponent, type Ref, useCallback } from "react";

/** A page of the console with its parameters; what a page makes of its search is in app/search. */
export interface Target {
  to: string;
  params?: Record<string, string>;
  search?: object | ((old: object) => object);
}

/** A link to a page of the console: a real one, that can be opened in another tab. */
export const Link = RouterLink as unknown as FunctionComponent<
  Target & AnchorHTMLAttributes<HTMLAnchorElement> & { ref?: Ref<HTMLAnchorElement> }
>;

export function useGo(): (target: Target) => void {
  const navigate = useNavigate();
  return useCallback((target) => void navigate(target as never), [navigate]);
}
