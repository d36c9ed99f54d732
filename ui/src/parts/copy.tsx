import { Button, Menu } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { Copy } from "lucide-react";
import { t, useT } from "../i18n";
import { prefix } from "../lib/prefix";
import { quote } from "../lib/shell";
import { named } from "./toast";

export { quote };

export interface HttpRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
}

export function curl({ method, path, body, headers = {} }: HttpRequest): string {
  const parts = ["curl"];
  if (method !== "GET" && !(method === "POST" && body !== undefined)) parts.push("-X", method);
  parts.push(quote(window.location.origin + prefix + path), "-H", '"Authorization: Bearer $TIDEWIRE_TOKEN"');
  const all = body === undefined || headers["Content-Type"] ? headers : { "Content-Type": "application/json", ...headers };
  for (const [name, value] of Object.entries(all)) parts.push("-H", quote(`${name}: ${value}`));
  if (body !== undefined) parts.push("--data-binary", quote(typeof body === "string" ? body : JSON.stringify(body)));
  return parts.join(" ");
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS browsers have no clipboard for pages: the old way.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  notifications.show({ message: t("copy.done"), autoClose: 1500, ...named() });
}

/** "Copy as": the same thing for a shell, for the command line client, and as JSON. */
export function CopyAs({
  request,
  cli,
  json,
  size = "sm",
}: {
  request: () => HttpRequest;
  cli?: () => string;
  json?: () => unknown;
  size?: string;
}) {
  const t = useT();
  return (
    <Menu position="bottom-end" withinPortal>
      <Menu.Target>
        <Button variant="default" size={size} leftSection={<Copy size={16} aria-hidden />}>
          {t("copy.as")}
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={() => copyText(curl(request()))}>curl</Menu.Item>
        {cli && <Menu.Item onClick={() => copyText(cli())}>{t("copy.cli")}</Menu.Item>}
        {json && <Menu.Item onClick={() => copyText(JSON.stringify(json(), null, 2))}>JSON</Menu.Item>}
      </Menu.Dropdown>
    </Menu>
  );
}
