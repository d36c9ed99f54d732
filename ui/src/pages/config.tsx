import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { api, take } from "../api/client";
import { configQuery, topicQuery } from "../app/queries";
import { configSearch, usePageSearch } from "../app/search";
import { ConfigEditor } from "../parts/configEditor";
import { useMay } from "../parts/gate";
import { Loaded } from "../parts/states";

export function ConfigPage() {
  const { topic } = useParams({ strict: false }) as { topic: string };
  const [search, change] = usePageSearch(configSearch);
  const client = useQueryClient();
  const state = useQuery(topicQuery(topic));
  const config = useQuery(configQuery(topic));
  const reason = useMay(config.data?.actions ?? state.data?.actions, `topic:${topic}`)("alter-configs");
  return (
    <Loaded of={config}>
      {(data) => (
        <ConfigEditor
          config={data}
          reason={reason}
          q={search.q}
          modified={search.modified === "true"}
          onFilter={(next) => change(next, { replace: true })}
          save={async (patch, etag) => {
            const next = await take(
              api.PATCH("/v1/topics/{topic}/config", { params: { path: { topic }, header: { "If-Match": `"${etag}"` } }, body: patch }),
            );
            client.setQueryData(configQuery(topic).queryKey, next);
            void client.invalidateQueries({ queryKey: ["topics"] });
            return next;
          }}
          reload={() => client.fetchQuery({ ...configQuery(topic), staleTime: 0 })}
        />
      )}
    </Loaded>
  );
}
