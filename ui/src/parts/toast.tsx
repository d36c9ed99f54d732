import { notifications } from "@mantine/notifications";
import { asProblem } from "../api/problem";

/** The result of an action, in passing. */
export const done = (message: string) => notifications.show({ message, color: "teal", autoClose: 4000 });

export const failed = (title: string, error: unknown) =>
  notifications.show({ title, message: asProblem(error).message, color: "red", autoClose: 10_000 });
