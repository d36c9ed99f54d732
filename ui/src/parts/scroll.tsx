import { ScrollArea } from "@mantine/core";
import type { ReactNode } from "react";

/** A wide table that scrolls by itself, also by keyboard. */
export function Scroll({ label, children }: { label: string; children: ReactNode }) {
  return (
    <ScrollArea type="auto" offsetScrollbars="x" viewportProps={{ tabIndex: 0, role: "region", "aria-label": label }}>
      {children}
    </ScrollArea>
  );
}
