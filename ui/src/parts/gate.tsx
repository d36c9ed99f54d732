import { Button, type ButtonProps, Tooltip } from "@mantine/core";
import type { MouseEventHandler, ReactNode } from "react";
import { session } from "../app/session";
import { useT } from "../i18n";
import { useStore } from "../lib/store";
import { Link } from "./link";

/** Why the caller may not do something; null where they may. */
export type Reason = string | null;

/** What a resource's `actions` say of an action. Without the resource nothing is known, so nothing is barred. */
export function useMay(actions: readonly string[] | undefined, resource: string) {
  const t = useT();
  return (action: string): Reason => (!actions || actions.includes(action) ? null : t("gate.reason", { action, resource }));
}

export function useAdminReason(): Reason {
  const t = useT();
  const { me } = useStore(session);
  return me?.admin ? null : t("gate.admin");
}

interface GatedProps extends Omit<ButtonProps, "disabled"> {
  reason: Reason;
  onClick?: MouseEventHandler<HTMLButtonElement>;
  type?: "button" | "submit";
  children: ReactNode;
  "aria-label"?: string;
}

/** A button that stays visible without permission, disabled, and says why on hover, focus and to screen readers. */
export function GatedButton({ reason, onClick, children, type = "button", ...rest }: GatedProps) {
  if (reason === null)
    return (
      <Button {...rest} type={type} onClick={onClick}>
        {children}
      </Button>
    );
  return (
    <Tooltip label={reason}>
      <Button
        {...rest}
        type="button"
        data-disabled
        aria-disabled
        aria-description={reason}
        data-reason={reason}
        onClick={(e: React.MouseEvent) => e.preventDefault()}
      >
        {children}
      </Button>
    </Tooltip>
  );
}

/** A link that looks like a button, gated alike. */
export function GatedLink({
  reason,
  to,
  params,
  search,
  children,
  ...rest
}: Omit<GatedProps, "onClick"> & { to: string; params?: Record<string, string>; search?: object }) {
  if (reason !== null)
    return (
      <GatedButton reason={reason} {...rest}>
        {children}
      </GatedButton>
    );
  return (
    <Button {...rest} component={Link} to={to} params={params} search={search}>
      {children}
    </Button>
  );
}
