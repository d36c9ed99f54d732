import { Alert } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { api, take } from "../api/client";
import { allItems } from "../app/queries";
import { useT } from "../i18n";
import { useAdminReason } from "../parts/gate";
import { RuleTable } from "../parts/rules";
import { Loaded } from "../parts/states";

/** The rules that apply to one topic. */
export function TopicAccessPage() {
  const t = useT();
  const { topic } = useParams({ strict: false }) as { topic: string };
  const reason = useAdminReason();
  const rules = useQuery({
    queryKey: ["acls", "topic", topic],
    enabled: reason === null,
    queryFn: () =>
      allItems((page_token) =>
        take(api.GET("/v1/topics/{topic}/access", { params: { path: { topic }, query: { limit: 500, page_token } } })),
      ),
  });
  if (reason)
    return (
      <Alert color="gray" styles={{ message: { color: "inherit" } }}>
        {reason}
      </Alert>
    );
  return (
    <Loaded of={rules}>
      {(items) => <RuleTable rules={items} fixed={{ resource_type: "topic", resource_name: topic }} empty={t("rules.noneTopic")} />}
    </Loaded>
  );
}
