import { Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, take } from "../api/client";
import { allItems } from "../app/queries";
import { useT } from "../i18n";
import { CopyAs } from "../parts/copy";
import { NodeTable } from "../parts/nodes";
import { Loaded, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

export function NodesPage() {
  const t = useT();
  usePageTitle(t("nav.nodes"));
  const nodes = useQuery({
    queryKey: ["nodes"],
    queryFn: () => allItems((page_token) => take(api.GET("/v1/brokers", { params: { query: { limit: 500, sort: "id", page_token } } }))),
    refetchInterval: 3000,
  });
  return (
    <Stack>
      <PageHead title={t("nav.nodes")} note={t("nodes.note")}>
        <CopyAs request={() => ({ method: "GET", path: "/v1/brokers" })} cli={() => "tidewire broker list"} json={() => nodes.data} />
      </PageHead>
      <Loaded of={nodes}>{(items) => <NodeTable label={t("nav.nodes")} items={items} />}</Loaded>
    </Stack>
  );
}
