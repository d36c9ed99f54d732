import { List, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, take } from "../api/client";
import { Problem } from "../api/problem";
import { useT } from "../i18n";
import { bytes, count } from "../lib/format";
import { Danger } from "./danger";
import { Loaded } from "./states";
import { done } from "./toast";

/** Deletes topics: shows what goes, by the node's own plan, and asks for the name, or for the number of many. */
export function DeleteTopics({ names, close, onDone }: { names: string[]; close: () => void; onDone: () => void }) {
  const t = useT();
  const plan = useQuery({
    queryKey: ["delete-plan", ...names],
    queryFn: () => take(api.POST("/v1/topics/delete", { params: { query: { dry_run: true } }, body: { names } })),
    retry: false,
    placeholderData: undefined,
  });
  const single = names.length === 1 ? names[0] : undefined;
  return (
    <Danger
      title={t("topics.deleteTitle", { n: names.length })}
      name={single ?? t("topics.deleteWord", { n: names.length })}
      action={t("act.delete")}
      close={close}
      impact={
        <>
          <Text size="sm" mb="xs">
            {t("topics.deleteImpact")}
          </Text>
          <Loaded of={plan} rows={2}>
            {({ results }) => (
              <List size="sm">
                {results.slice(0, 20).map((r) => {
                  const problem = r.problem as { detail?: string } | null;
                  return (
                    <List.Item key={r.name}>
                      <b>{r.name}</b>:{" "}
                      {problem
                        ? problem.detail
                        : t("topics.deletePlan", { records: count(r.records), size: bytes(r.size_bytes), partitions: r.partitions ?? 0 })}
                    </List.Item>
                  );
                })}
              </List>
            )}
          </Loaded>
        </>
      }
      run={async () => {
        if (single) {
          await take(api.DELETE("/v1/topics/{topic}", { params: { path: { topic: single } } }));
          done(t("topics.deleted", { n: 1, names: single }));
        } else {
          const { results } = await take(api.POST("/v1/topics/delete", { body: { names } }));
          const bad = results.filter((r) => r.problem);
          const good = results.length - bad.length;
          if (good > 0) done(t("topics.deleted", { n: good, names: String(good) }));
          if (bad.length > 0) {
            onDone();
            throw new Problem(409, "partly", bad.map((r) => `${r.name}: ${(r.problem as { detail?: string } | null)?.detail}`).join("\n"));
          }
        }
        onDone();
      }}
    />
  );
}
