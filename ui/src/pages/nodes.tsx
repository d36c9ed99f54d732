import { Badge, Stack, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, type Schemas, take } from "../api/client";
import { allItems, clusterQuery } from "../app/queries";
import { useT } from "../i18n";
import { bytes, count } from "../lib/format";
import { CopyAs } from "../parts/copy";
import { Link } from "../parts/link";
import { Scroll } from "../parts/scroll";
import { Loaded, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";

export function NodeState({ state }: { state: Schemas["Broker"]["state"] }) {
  const t = useT();
  return (
    <Badge variant="dot" color={state === "online" ? "teal" : state === "draining" ? "yellow" : "red"} tt="none">
      {t(`node.state.${state}`)}
    </Badge>
  );
}

export function NodesPage() {
  const t = useT();
  usePageTitle(t("nav.nodes"));
  const cluster = useQuery({ ...clusterQuery, retry: false });
  const nodes = useQuery({
    queryKey: ["nodes"],
    queryFn: () => allItems((page_token) => take(api.GET("/v1/brokers", { params: { query: { limit: 500, page_token } } }))),
    refetchInterval: 5000,
  });
  return (
    <Stack>
      <PageHead title={t("nav.nodes")} note={t("nodes.note")}>
        <CopyAs request={() => ({ method: "GET", path: "/v1/brokers" })} cli={() => "tidewire broker list"} json={() => nodes.data} />
      </PageHead>
      <Loaded of={nodes}>
        {(items) => (
          <Scroll label={t("nav.nodes")}>
            <Table miw={820} highlightOnHover>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t("node.id")}</Table.Th>
                  <Table.Th>{t("node.state")}</Table.Th>
                  <Table.Th>{t("node.role")}</Table.Th>
                  <Table.Th>{t("node.address")}</Table.Th>
                  <Table.Th>{t("about.version")}</Table.Th>
                  <Table.Th ta="right">{t("node.leaders")}</Table.Th>
                  <Table.Th ta="right">{t("partitions.replicas")}</Table.Th>
                  <Table.Th ta="right">{t("node.disk")}</Table.Th>
                  <Table.Th>{t("node.started")}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {items.map((b) => (
                  <Table.Tr key={b.id}>
                    <Table.Td>
                      <Link to="/nodes/$node" params={{ node: String(b.id) }} className="tw-link">
                        {b.id}
                      </Link>
                    </Table.Td>
                    <Table.Td>
                      <NodeState state={b.state} />
                    </Table.Td>
                    <Table.Td>{cluster.data?.controller === b.id ? t("overview.controller") : "–"}</Table.Td>
                    <Table.Td className="tw-mono">{b.http_address ?? b.host}</Table.Td>
                    <Table.Td>{b.version}</Table.Td>
                    <Table.Td ta="right">{count(b.leaders)}</Table.Td>
                    <Table.Td ta="right">{count(b.replicas)}</Table.Td>
                    <Table.Td ta="right">{bytes(b.disk_free_bytes)}</Table.Td>
                    <Table.Td>
                      <Time at={b.started_at} />
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Scroll>
        )}
      </Loaded>
    </Stack>
  );
}
