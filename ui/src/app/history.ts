import { queryOptions } from "@tanstack/react-query";
import { api, take } from "../api/client";
import type { Series } from "../parts/chart";
import { nodeNow } from "./session";

export const spans = { "15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000 } as const;
export type Span = keyof typeof spans;

/** Series of the metrics history over the last while: of a node, or else of the one that answers. */
export const historyQuery = (names: string[], span: Span, node?: number) =>
  queryOptions({
    queryKey: ["history", node, span, ...names],
    queryFn: async (): Promise<Record<string, Series & { doc: string }>> => {
      const to = Math.ceil(nodeNow());
      const query = { series: names.join(","), from: to - spans[span], to };
      const answer = await take(
        node === undefined
          ? api.GET("/v1/metrics/history", { params: { query } })
          : api.GET("/v1/brokers/{broker}/metrics/history", { params: { path: { broker: node }, query } }),
      );
      return Object.fromEntries(answer.series.map((s) => [s.name, { ...s, points: s.points as unknown as Series["points"] }]));
    },
    refetchInterval: 10_000,
  });
