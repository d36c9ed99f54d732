import { Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { api, take } from "../api/client";
import { problemOf } from "../api/problem";
import { useT } from "../i18n";
import { CopyAs, quote } from "./copy";
import { Danger } from "./danger";
import { done } from "./toast";

/** Partitions in which a leader is to be elected; preferred without any: all that can have theirs. */
export interface Election {
  type: "preferred" | "unclean";
  partitions: { topic: string; partition: number }[] | null;
}

/** An election by hand. An unclean one may lose records, so the topic's name is typed first. */
export function ElectDialog({ of, close }: { of: Election; close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const unclean = of.type === "unclean";
  const names = (of.partitions ?? []).map((p) => `${p.topic}:${p.partition}`).join(", ");
  const cli = (of.partitions ?? []).map((p) => ` ${quote(`${p.topic}/${p.partition}`)}`).join("");
  return (
    <Danger
      title={t(unclean ? "elect.unclean" : "elect.preferred")}
      action={t("elect.act")}
      name={unclean ? of.partitions?.[0]?.topic : undefined}
      impact={
        <>
          <Text size="sm" mb={4}>
            {unclean ? t("elect.uncleanImpact", { names }) : names ? t("elect.preferredImpact", { names }) : t("elect.allImpact")}
          </Text>
          <CopyAs
            size="compact-xs"
            request={() => ({ method: "POST", path: "/v1/elections", body: of })}
            cli={() => `tidewire election ${of.type}${cli}`}
          />
        </>
      }
      close={close}
      run={async () => {
        const { results } = await take(api.POST("/v1/elections", { body: of }));
        void client.invalidateQueries();
        const refused = results.find((r) => r.problem)?.problem as { status?: number } | undefined;
        if (refused && results.length === 1) throw problemOf(refused.status ?? 409, refused);
        done(t("elect.done", { n: results.filter((r) => !r.problem).length }));
      }}
    />
  );
}
