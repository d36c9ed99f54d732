import { Alert, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { CircleCheck } from "lucide-react";
import { useState } from "react";
import { useMayCluster } from "../app/cluster";
import { clusterQuery } from "../app/queries";
import { type Key, useT } from "../i18n";
import { CopyAs } from "../parts/copy";
import { ElectDialog, type Election } from "../parts/elections";
import { Findings } from "../parts/findings";
import { GatedButton } from "../parts/gate";
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
  const reason = useMayCluster("alter");
  const [electing, setElecting] = useState<Election | null>(null);
  return (
    <Stack>
      <PageHead title={t("nav.replication")} note={t("replication.note")}>
        <GatedButton reason={reason} variant="default" onClick={() => setElecting({ type: "preferred", partitions: null })}>
          {t("elect.preferred")}
        </GatedButton>
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
            act={
              health === "offline"
                ? (p) => (
                    <GatedButton
                      size="compact-sm"
                      variant="light"
                      color="red"
                      reason={reason}
                      onClick={() => setElecting({ type: "unclean", partitions: [{ topic: p.topic, partition: p.partition }] })}
                    >
                      {t("elect.unclean")}
                    </GatedButton>
                  )
                : undefined
            }
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
      {electing && <ElectDialog of={electing} close={() => setElecting(null)} />}
    </Stack>
  );
}
