import { useEffect } from "react";

/** The title of the browser's tab. */
export function usePageTitle(title: string) {
  useEffect(() => {
    document.title = `${title} · Tidewire`;
  }, [title]);
}
