import { Badge } from "@mantine/core";
import { type Key, useT } from "../i18n";

const colors: Record<string, string> = { healthy: "teal", "under-replicated": "yellow", "under-min-isr": "red", offline: "red" };
const names: Record<string, Key> = {
  healthy: "health.word.healthy",
  "under-replicated": "health.word.under",
  "under-min-isr": "health.word.minIsr",
  offline: "health.word.offline",
};

export function HealthBadge({ health }: { health: string | null | undefined }) {
  const t = useT();
  if (!health) return <span>–</span>;
  const name = names[health];
  return (
    <Badge variant="dot" color={colors[health] ?? "gray"} tt="none" miw="max-content">
      {name ? t(name) : health}
    </Badge>
  );
}
