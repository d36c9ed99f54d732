import { Alert, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { CircleCheck } from "lucide-react";
import { clusterQuery } from "../app/queries";
import { type Key, useT } from "../i18n";
import { CopyAs } from "../parts/copy";
import { Findings } from "../parts/findings";
import { PartitionList } from "../parts/partitionList";
import { PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

const sections: { health: string; title: Key; text: Key; none: Key }[] = [
  { health: "offline", title: "replication.offline", text: "replication.offlineText", none: "replication.offlineNone" },
  { health: "under-min-isr", title: "replication.minIsr", text: "replication.minIsrText", none: "replication.minIsrNone" },
  { health: "under-replicated", title: "replication.under", text: "replication.underText", none: "replication.underNone" },
];

export function ReplicationPage() {
  const t = useT();
  usePageTitle(t("nav.replication"));
  const cluster = useQuery({ ...clusterQuery, retry: false, refetchInterval: 3000 });
  return (
    <Stack>
      <PageHead title={t("nav.replication")} note={t("replication.note")}>
        <CopyAs request={() => ({ method: "GET", path: "/v1/partitions?health=unhealthy" })} />
      </PageHead>
      {cluster.data && <Findings of={cluster.data} />}
      {sections.map(({ health, title, text, none }) => (
        <section key={health} aria-labelledby={health}>
          <Title order={2} size="h4" id={health}>
            {t(title)}
          </Title>
          <Text size="sm" c="dimmed" mb="xs">
            {t(text)}
          </Text>
          <PartitionList
            label={t(title)}
            health={health}
            empty={
              <Alert
                color="teal"
                variant="light"
                icon={<CircleCheck size={18} aria-hidden />}
                p="xs"
                styles={{ message: { color: "inherit" } }}
              >
                {t(none)}
              </Alert>
            }
          />
        </section>
      ))}
    </Stack>
  );
}
