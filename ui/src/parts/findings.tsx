import { Alert, List, Text } from "@mantine/core";
import { CircleCheck, CircleX, TriangleAlert } from "lucide-react";
import { useT } from "../i18n";
import { findings } from "../lib/cluster";
import { Link } from "./link";

const icons = { red: CircleX, yellow: TriangleAlert, teal: CircleCheck };

/** The state of the cluster: one sentence, and what else is wrong below it. */
export function Findings({ of }: { of: Parameters<typeof findings>[0] }) {
  const t = useT();
  const [first, ...rest] = findings(of);
  if (!first) return null;
  const Icon = icons[first.color];
  return (
    <Alert
      color={first.color}
      variant="light"
      icon={<Icon size={22} aria-hidden />}
      role="status"
      styles={{ message: { color: "inherit" } }}
    >
      <Text fw={600} c="var(--mantine-color-text)">
        {t(first.key, first.values)}
      </Text>
      {rest.length > 0 && (
        <List size="sm" mt={4}>
          {rest.map((f) => (
            <List.Item key={f.key}>
              {f.to ? (
                <Link to={f.to} className="tw-plain">
                  {t(f.key, f.values)}
                </Link>
              ) : (
                t(f.key, f.values)
              )}
            </List.Item>
          ))}
        </List>
      )}
    </Alert>
  );
}
