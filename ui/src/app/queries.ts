import { keepPreviousData, QueryClient, queryOptions } from "@tanstack/react-query";
import { api, type Schemas, take } from "../api/client";
import { asProblem } from "../api/problem";
import { connection } from "./session";

/** Refusals are not asked again; a node that cannot be reached is, with growing pauses. */
export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => {
        const { status, code } = asProblem(error);
        return (code === "unreachable" || status >= 500) && status !== 501 && failures < 3;
      },
      staleTime: 2000,
      placeholderData: keepPreviousData,
      refetchIntervalInBackground: false,
    },
  },
});

export const infoQuery = queryOptions({
  queryKey: ["info"],
  queryFn: async () => {
    const began = Date.now();
    const info = await take(api.GET("/v1/info"));
    const skew = Date.parse(info.server_time) - (began + Date.now()) / 2;
    connection.set({ ...connection.get(), skew: Math.abs(skew) < 1500 ? 0 : skew });
    return info;
  },
  // A clock that is off is looked at closely, until somebody has set it.
  refetchInterval: () => (Math.abs(connection.get().skew) > 60_000 ? 5_000 : 60_000),
});

export const clusterQuery = queryOptions({
  queryKey: ["cluster"],
  queryFn: () => take(api.GET("/v1/cluster")),
  refetchInterval: 10_000,
});

/** Partitions of all topics by how they are. */
export const partitionsQuery = (query: { health?: string; broker?: number; sort?: "-health"; limit: number }) =>
  queryOptions({
    queryKey: ["partitions", query],
    queryFn: () => take(api.GET("/v1/partitions", { params: { query } })),
    refetchInterval: 3000,
    retry: false,
  });

export const topicQuery = (topic: string) =>
  queryOptions({
    queryKey: ["topic", topic],
    queryFn: () => take(api.GET("/v1/topics/{topic}", { params: { path: { topic } } })),
    refetchInterval: 5000,
    placeholderData: undefined,
  });

export const configQuery = (topic: string) =>
  queryOptions({
    queryKey: ["config", topic],
    queryFn: () => take(api.GET("/v1/topics/{topic}/config", { params: { path: { topic } } })),
    placeholderData: undefined,
  });

/** A group is watched closely: its members and its lag move. */
export const groupQuery = (group: string) =>
  queryOptions({
    queryKey: ["group", group],
    queryFn: () => take(api.GET("/v1/groups/{group}", { params: { path: { group } } })),
    refetchInterval: 2000,
    placeholderData: undefined,
  });

/** All items of a list that is known to be short, page by page. */
export async function allItems<T>(
  page: (token: string | undefined) => Promise<{ items: T[]; next_page_token: string | null }>,
  most = 5000,
): Promise<T[]> {
  const items: T[] = [];
  let token: string | undefined;
  do {
    const answer = await page(token);
    items.push(...answer.items);
    token = answer.next_page_token ?? undefined;
  } while (token && items.length < most);
  return items;
}

export type Topic = Schemas["Topic"];
export type TopicItem = Schemas["TopicItem"];
export type ConsumerGroup = Schemas["Group"];
export type GroupItem = Schemas["GroupItem"];
