import { Badge, Group, Progress, Stack, Table, Text } from "@mantine/core";
import { CircleSlash } from "lucide-react";
import type { Schemas } from "../api/client";
import { nodeNow } from "../app/session";
import { useT } from "../i18n";
import { bytes, count, duration } from "../lib/format";
import { Link } from "./link";
import { Scroll } from "./scroll";

export type Broker = Schemas["Broker"];

const stateColors: Record<Broker["state"], string> = { online: "teal", draining: "yellow", fenced: "red", offline: "red" };

export function NodeState({ state }: { state: Broker["state"] }) {
  const t = useT();
  return (
    <Badge variant="dot" color={stateColors[state]} tt="none">
      {t(`node.state.${state}`)}
    </Badge>
  );
}

export function NodeRole({ role }: { role: Broker["role"] }) {
  const t = useT();
  return <>{t(`node.role.${role}`)}</>;
}

export function NodeLink({ node }: { node: number }) {
  const t = useT();
  return (
    <Link to="/nodes/$node" params={{ node: String(node) }} className="tw-link" aria-label={`${t("node.id")} ${node}`}>
      {node}
    </Link>
  );
}

/** How full a disk is, in words and as a bar; what stands in for it where the node has not told. */
export function Disk({ of }: { of: Pick<Broker, "disk_free_bytes" | "disk_bytes" | "state"> }) {
  const t = useT();
  const { disk_free_bytes: free, disk_bytes: total, state } = of;
  if (free === null)
    return (
      <Text size="sm" c="dimmed" span>
        {state === "offline" ? "–" : t("node.noAnswer")}
      </Text>
    );
  const used = total ? ((total - free) / total) * 100 : null;
  return (
    <Stack gap={2} miw={120}>
      <Text size="sm" span>
        {total === null ? bytes(free) : t("node.diskOf", { free: bytes(free), total: bytes(total) })}
      </Text>
      {used !== null && (
        <Progress value={used} size="xs" color={used > 95 ? "red" : used > 85 ? "yellow" : "teal"} aria-label={t("node.diskUsed")} />
      )}
    </Stack>
  );
}

/** A node's replicas, and how many of them are not in sync. */
export function ReplicaCount({ of }: { of: Pick<Broker, "replicas" | "out_of_sync"> }) {
  const t = useT();
  return (
    <>
      {count(of.replicas)}
      {of.out_of_sync > 0 && (
        <Text size="xs" span display="block" className="tw-bad">
          {t("node.outOfSync", { n: of.out_of_sync })}
        </Text>
      )}
    </>
  );
}

export function uptime(b: Pick<Broker, "started_at" | "state">): string {
  return b.started_at && b.state !== "offline" ? duration(Math.max(0, nodeNow() - Date.parse(b.started_at))) : "–";
}

/** The nodes of a cluster. */
export function NodeTable({ label, items }: { label: string; items: Broker[] }) {
  const t = useT();
  return (
    <Scroll label={label}>
      <Table miw={900} highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("node.id")}</Table.Th>
            <Table.Th>{t("node.state")}</Table.Th>
            <Table.Th>{t("node.role")}</Table.Th>
            <Table.Th>{t("node.address")}</Table.Th>
            <Table.Th ta="right">{t("node.leaders")}</Table.Th>
            <Table.Th ta="right">{t("partitions.replicas")}</Table.Th>
            <Table.Th>{t("node.disk")}</Table.Th>
            <Table.Th>{t("about.version")}</Table.Th>
            <Table.Th>{t("node.uptime")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items.map((b) => (
            <Table.Tr key={b.id}>
              <Table.Td>
                <NodeLink node={b.id} />
              </Table.Td>
              <Table.Td>
                <NodeState state={b.state} />
              </Table.Td>
              <Table.Td>
                <NodeRole role={b.role} />
              </Table.Td>
              <Table.Td className="tw-mono">
                {b.http_address ?? b.host}
                {b.rack && (
                  <Text size="xs" c="dimmed" span display="block">
                    {b.rack}
                  </Text>
                )}
              </Table.Td>
              <Table.Td ta="right">{count(b.leaders)}</Table.Td>
              <Table.Td ta="right">
                <ReplicaCount of={b} />
              </Table.Td>
              <Table.Td>
                <Disk of={b} />
              </Table.Td>
              <Table.Td>{b.version}</Table.Td>
              <Table.Td style={{ whiteSpace: "nowrap" }}>{uptime(b)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Scroll>
  );
}

/** The nodes that hold a partition; those that are not in sync are marked. */
export function Replicas({ of, out }: { of: number[]; out: number[] }) {
  const t = useT();
  return (
    <Group gap={4} wrap="nowrap">
      {of.map((id) => {
        const bad = out.includes(id);
        return (
          <Badge
            key={id}
            variant="outline"
            color={bad ? "red" : "teal"}
            c="inherit"
            tt="none"
            leftSection={bad ? <CircleSlash size={12} aria-hidden /> : undefined}
            title={t(bad ? "replica.out" : "replica.in", { node: id })}
          >
            {id}
            <span className="tw-said">{bad ? t("replica.outWord") : ""}</span>
          </Badge>
        );
      })}
    </Group>
  );
}
