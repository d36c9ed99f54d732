import { notifications } from "@mantine/notifications";
import { asProblem } from "../api/problem";
import { t } from "../i18n";

/** Its button has no name of its own. */
export const named = () => ({ closeButtonProps: { "aria-label": t("act.close") } });

/** The result of an action, in passing. */
export const done = (message: string) => notifications.show({ message, color: "teal", autoClose: 4000, ...named() });

export const failed = (title: string, error: unknown) =>
  notifications.show({ title, message: asProblem(error).message, color: "red", autoClose: 10_000, ...named() });
