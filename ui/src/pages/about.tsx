import { Anchor, Badge, Group, List, Stack, Table, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { clusterQuery, infoQuery } from "../app/queries";
import { type Key, useT } from "../i18n";
import { bytes, count, duration } from "../lib/format";
import { prefix } from "../lib/prefix";
import { CopyAs } from "../parts/copy";
import { Loaded, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";

const limit = (name: string, value: number) =>
  name.endsWith("_bytes") ? bytes(value) : name.endsWith("_ms") ? duration(value) : count(value);

export function AboutPage() {
  const t = useT();
  usePageTitle(t("nav.about"));
  const info = useQuery(infoQuery);
  const cluster = useQuery({ ...clusterQuery, retry: false });
  const links: [string, Key][] = [
    ["/docs", "about.docs"],
    ["/openapi.json", "about.openapi"],
  ];
  return (
    <Stack maw={760}>
      <PageHead title={t("nav.about")}>
        <CopyAs request={() => ({ method: "GET", path: "/v1/info" })} cli={() => "tidewire version"} json={() => info.data} />
      </PageHead>
      <List listStyleType="none" spacing={4}>
        {links.map(([to, label]) => (
          <List.Item key={to}>
            <Anchor href={prefix + to}>{t(label)}</Anchor>
          </List.Item>
        ))}
      </List>
      <Loaded of={info}>
        {(data) => (
          <Stack>
            <Table variant="vertical" layout="auto" withTableBorder>
              <Table.Tbody>
                <Table.Tr>
                  <Table.Th w={220}>{t("about.version")}</Table.Th>
                  <Table.Td>{data.version}</Table.Td>
                </Table.Tr>
                <Table.Tr>
                  <Table.Th>{t("about.time")}</Table.Th>
                  <Table.Td>
                    <Time at={data.server_time} />
                  </Table.Td>
                </Table.Tr>
                {cluster.data && (
                  <Table.Tr>
                    <Table.Th>{t("about.cluster")}</Table.Th>
                    <Table.Td style={{ overflowWrap: "anywhere" }}>
                      {cluster.data.name} · {cluster.data.cluster_id}
                    </Table.Td>
                  </Table.Tr>
                )}
                {Object.entries(data.limits).map(([name, value]) => (
                  <Table.Tr key={name}>
                    <Table.Th style={{ whiteSpace: "nowrap" }}>{name}</Table.Th>
                    <Table.Td>{limit(name, value)}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
            <Title order={2} size="h4">
              {t("about.features")}
            </Title>
            <Group gap={6}>
              {data.features.map((f) => (
                <Badge key={f} variant="default" tt="none">
                  {f}
                </Badge>
              ))}
            </Group>
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}
