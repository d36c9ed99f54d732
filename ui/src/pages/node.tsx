import { SimpleGrid, Stack, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { api, take } from "../api/client";
import { historyQuery } from "../app/history";
import { clusterQuery } from "../app/queries";
import { nodeNow } from "../app/session";
import { useT } from "../i18n";
import { bytes, count, duration } from "../lib/format";
import { CopyAs } from "../parts/copy";
import { Link } from "../parts/link";
import { Failure, Loaded, Loading, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";
import { NodeState } from "./nodes";

const Chart = lazy(() => import("../parts/chart"));
const charted = ["bytes_in_per_s", "bytes_out_per_s", "disk_free_bytes"];

export function NodePage() {
  const t = useT();
  const { node } = useParams({ strict: false }) as { node: string };
  usePageTitle(`${t("node.id")} ${node}`);
  const broker = Number(node);
  const state = useQuery({
    queryKey: ["node", node],
    queryFn: () => take(api.GET("/v1/brokers/{broker}", { params: { path: { broker: node as never } } })),
    refetchInterval: 5000,
    placeholderData: undefined,
  });
  const cluster = useQuery({ ...clusterQuery, retry: false });
  const history = useQuery({ ...historyQuery(charted, "15m"), retry: false });
  // The history is of the node that is asked, so it is shown where there is no other.
  const alone = cluster.data?.brokers.length === 1;
  const line = (name: string, label: string) => ({ points: [], unit: "count", ...history.data?.[name], name: label });
  const title = `${t("node.id")} ${node}`;
  return (
    <Stack>
      <PageHead title={title} note={state.data && <NodeState state={state.data.state} />}>
        <CopyAs request={() => ({ method: "GET", path: `/v1/brokers/${encodeURIComponent(node)}` })} json={() => state.data} />
      </PageHead>
      {state.error && !state.data ? (
        <>
          <Failure error={state.error} retry={() => state.refetch()} />
          <Link to="/nodes" className="tw-link">
            {t("nav.nodes")}
          </Link>
        </>
      ) : (
        <Loaded of={state}>
          {(b) => {
            const rows: [string, React.ReactNode][] = [
              [t("node.role"), cluster.data?.controller === broker ? t("overview.controller") : "–"],
              [t("node.address"), <code key="a">{b.http_address ?? b.host}</code>],
              [t("about.version"), b.version],
              [t("node.started"), <Time key="s" at={b.started_at} />],
              [t("node.uptime"), b.started_at ? duration(Math.max(0, nodeNow() - Date.parse(b.started_at))) : "–"],
              [t("node.disk"), bytes(b.disk_free_bytes)],
              [t("node.leaders"), count(b.leaders)],
              [t("partitions.replicas"), count(b.replicas)],
              [t("node.rack"), b.rack ?? "–"],
            ];
            return (
              <Table variant="vertical" withTableBorder maw={640}>
                <Table.Tbody>
                  {rows.map(([label, value]) => (
                    <Table.Tr key={label}>
                      <Table.Th w={180}>{label}</Table.Th>
                      <Table.Td style={{ overflowWrap: "anywhere" }}>{value}</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            );
          }}
        </Loaded>
      )}
      {alone && history.data && (
        <SimpleGrid cols={{ base: 1, md: 2 }}>
          <Suspense fallback={<Loading rows={3} />}>
            <Chart
              title={t("overview.bytes")}
              series={[line("bytes_in_per_s", t("overview.in")), line("bytes_out_per_s", t("overview.out"))]}
            />
            <Chart title={t("metrics.disk")} series={[line("disk_free_bytes", t("metrics.free"))]} />
          </Suspense>
        </SimpleGrid>
      )}
    </Stack>
  );
}
