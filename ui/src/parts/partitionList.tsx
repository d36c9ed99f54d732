import { Anchor, Badge, Group, Stack, Table, Text } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import type { Schemas } from "../api/client";
import { partitionsQuery } from "../app/queries";
import { useT } from "../i18n";
import { count } from "../lib/format";
import { HealthBadge } from "./health";
import { Link } from "./link";
import { NodeLink, Replicas } from "./nodes";
import { Scroll } from "./scroll";
import { Loaded } from "./states";

export type PartitionItem = Schemas["PartitionItem"];
type Page = Schemas["PartitionItemPage"];

const step = 50;

/** Partitions by how they are, page by page; what is shown of them stays live. */
export function PartitionList({
  label,
  health,
  broker,
  sort,
  empty,
  act,
}: {
  label: string;
  health?: string;
  broker?: number;
  sort?: "-health";
  empty: ReactNode;
  /** What can be done with a partition. */
  act?: (p: PartitionItem) => ReactNode;
}) {
  const t = useT();
  const [most, setMost] = useState(step);
  const list = useQuery(partitionsQuery({ health, broker, sort, limit: most })) as UseQueryResult<Page>;
  return (
    <Loaded of={list} rows={2}>
      {({ items, total }) =>
        items.length === 0 ? (
          empty
        ) : (
          <Stack gap="xs">
            <PartitionRows label={label} items={items} act={act} />
            <Group gap="sm">
              <Text size="sm" c="dimmed">
                {t("groups.shown", { n: items.length, total: count(total) })}
              </Text>
              {total > items.length && most < 1000 && (
                <Anchor component="button" type="button" size="sm" onClick={() => setMost(Math.min(1000, most * 4))}>
                  {t("act.loadMore")}
                </Anchor>
              )}
            </Group>
          </Stack>
        )
      }
    </Loaded>
  );
}

function PartitionRows({ label, items, act }: { label: string; items: PartitionItem[]; act?: (p: PartitionItem) => ReactNode }) {
  const t = useT();
  return (
    <Scroll label={label}>
      <Table miw={760} highlightOnHover aria-label={label}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("topic.partition")}</Table.Th>
            <Table.Th>{t("topic.health")}</Table.Th>
            <Table.Th>{t("partitions.leader")}</Table.Th>
            <Table.Th>{t("partitions.replicas")}</Table.Th>
            <Table.Th>{t("partitions.isr")}</Table.Th>
            <Table.Th>{t("partitions.eligible")}</Table.Th>
            {act && <Table.Th aria-label={t("act.more")} />}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items.map((p) => (
            <Table.Tr key={`${p.topic}:${p.partition}`}>
              <Table.Td style={{ overflowWrap: "anywhere" }}>
                <Link to="/topics/$topic/partitions" params={{ topic: p.topic }} className="tw-link">
                  {p.topic}:{p.partition}
                </Link>
                {p.error && (
                  <Text size="xs" className="tw-bad">
                    {(p.error as { detail?: string }).detail}
                  </Text>
                )}
              </Table.Td>
              <Table.Td>
                <HealthBadge health={p.health} />
              </Table.Td>
              <Table.Td>
                {p.leader === null ? (
                  <Badge color="red" tt="none">
                    {t("partitions.noLeader")}
                  </Badge>
                ) : (
                  <NodeLink node={p.leader} />
                )}
              </Table.Td>
              <Table.Td>
                <Replicas of={p.replicas} out={p.out_of_sync} />
              </Table.Td>
              <Table.Td>{t("partitions.inSyncOf", { n: p.replicas.length - p.out_of_sync.length, min: p.min_insync_replicas })}</Table.Td>
              <Table.Td>{p.eligible_leader_replicas.join(", ") || "–"}</Table.Td>
              {act && <Table.Td ta="right">{act(p)}</Table.Td>}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Scroll>
  );
}
