import { Button, Code, Fieldset, Group, NumberInput, Paper, Radio, Select, Stack, Text, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, take } from "../api/client";
import { asProblem } from "../api/problem";
import { infoQuery } from "../app/queries";
import { type Key, useT } from "../i18n";
import { CopyAs, curl, quote } from "../parts/copy";
import { useGo } from "../parts/link";
import { Failure, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";
import { done } from "../parts/toast";

type Preset = "events" | "state" | "short";
const presets: Record<Preset, { label: Key; text: Key; config: Record<string, string> }> = {
  events: { label: "preset.events", text: "preset.eventsText", config: {} },
  state: { label: "preset.state", text: "preset.stateText", config: { "cleanup.policy": "compact" } },
  short: { label: "preset.short", text: "preset.shortText", config: { "retention.ms": "3600000" } },
};

/** What is wrong with a name, before the node is asked. */
export function nameFault(name: string): Key | null {
  if (name === "") return null;
  if (name === "." || name === "..") return "topic.nameDots";
  if (name.length > 249) return "topic.nameLong";
  return /^[A-Za-z0-9._-]+$/.test(name) ? null : "topic.nameChars";
}

/** Whether a name is free: also `a.b` beside `a_b` is taken. */
function useNameCheck(name: string) {
  const [asked] = useDebouncedValue(name, 250);
  return useQuery({
    queryKey: ["name", asked],
    enabled: asked !== "" && nameFault(asked) === null,
    placeholderData: undefined,
    queryFn: async () => {
      const alike = asked.replace(/[._]/g, "_");
      const { items } = await take(api.GET("/v1/topics", { params: { query: { q: asked, limit: 100, fields: "name", internal: true } } }));
      return (items as { name: string }[]).find((x) => x.name.replace(/[._]/g, "_") === alike)?.name ?? null;
    },
  });
}

const retentions = ["3600000", "86400000", "604800000", "2592000000", "-1"] as const;

export function NewTopicPage() {
  const t = useT();
  usePageTitle(t("topics.create"));
  const go = useGo();
  const client = useQueryClient();
  const info = useQuery(infoQuery);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const form = useForm({
    initialValues: {
      name: "",
      partitions: 1 as number | string,
      replication: "" as number | string,
      preset: "events" as Preset,
      retention: "",
    },
    validate: { name: (v) => (v === "" ? t("topic.nameEmpty") : nameFault(v) ? t(nameFault(v) as Key) : null) },
  });
  const { name, partitions, replication, preset, retention } = form.values;
  const taken = useNameCheck(name);
  const config = { ...presets[preset].config, ...(retention ? { "retention.ms": retention } : {}) };
  const body = {
    name,
    partitions: Number(partitions) || 1,
    ...(replication === "" ? {} : { replication_factor: Number(replication) }),
    ...(Object.keys(config).length > 0 ? { config } : {}),
  };
  const request = () => ({ method: "POST" as const, path: "/v1/topics", body });
  const cli = () =>
    [
      "tidewire topic create",
      quote(name || "NAME"),
      `--partitions ${body.partitions}`,
      ...(replication === "" ? [] : [`--replication-factor ${replication}`]),
      ...Object.entries(config).map(([k, v]) => `--config ${quote(`${k}=${v}`)}`),
    ].join(" ");
  const submit = form.onSubmit(async () => {
    setBusy(true);
    setError(null);
    try {
      await take(api.POST("/v1/topics", { body }));
      done(t("topics.created", { name }));
      void client.invalidateQueries({ queryKey: ["topics"] });
      go({ to: "/topics/$topic/messages", params: { topic: name } });
    } catch (e) {
      const problem = asProblem(e);
      const at = problem.at("/name");
      if (at) form.setFieldError("name", at);
      setError(problem);
    } finally {
      setBusy(false);
    }
  });
  const fault = nameFault(name);
  const nameError = form.errors.name ?? (fault ? t(fault) : taken.data ? t("topic.nameTaken", { name: taken.data }) : undefined);
  const good = name !== "" && !nameError && taken.data === null;
  return (
    <Stack maw={760}>
      <PageHead title={t("topics.create")}>
        <CopyAs request={request} cli={cli} json={() => body} />
      </PageHead>
      <form onSubmit={submit}>
        <Stack>
          <TextInput
            label={t("topic.name")}
            description={good ? t("topic.nameFree") : t("topic.nameRule")}
            {...form.getInputProps("name")}
            error={nameError}
            autoComplete="off"
            spellCheck={false}
            data-autofocus
          />
          <Radio.Group label={t("preset.label")} {...form.getInputProps("preset")}>
            <Group mt="xs" align="stretch">
              {(Object.keys(presets) as Preset[]).map((id) => (
                <Radio.Card key={id} value={id} p="sm" w={{ base: "100%", sm: 225 }} radius="md" aria-label={t(presets[id].label)}>
                  <Group wrap="nowrap" align="flex-start">
                    <Radio.Indicator />
                    <div>
                      <Text fw={600} size="sm">
                        {t(presets[id].label)}
                      </Text>
                      <Text size="sm" c="dimmed">
                        {t(presets[id].text)}
                      </Text>
                    </div>
                  </Group>
                </Radio.Card>
              ))}
            </Group>
          </Radio.Group>
          <Group grow align="flex-start">
            <NumberInput
              label={t("topic.partitions")}
              description={t("topic.partitionsHint")}
              min={1}
              max={info.data?.limits.max_partitions ?? 10_000}
              allowDecimal={false}
              {...form.getInputProps("partitions")}
            />
            <NumberInput
              label={t("topic.replication")}
              description={t("topic.replicationHint")}
              min={1}
              max={32767}
              allowDecimal={false}
              {...form.getInputProps("replication")}
            />
          </Group>
          <Select
            label={t("topic.retention")}
            description={t("topic.retentionHint")}
            data={[
              { value: "", label: t("topic.retentionPreset") },
              ...retentions.map((value) => ({ value, label: t(`retention.${value}` as Key) })),
            ]}
            allowDeselect={false}
            {...form.getInputProps("retention")}
          />
          <Fieldset legend={t("topic.same")}>
            <Stack gap="xs">
              <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
                {curl(request())}
              </Code>
              <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
                {cli()}
              </Code>
            </Stack>
          </Fieldset>
          {error ? <Failure error={error} /> : null}
          <Paper>
            <Button type="submit" loading={busy} disabled={Boolean(fault) || Boolean(taken.data)}>
              {t("topics.create")}
            </Button>
          </Paper>
        </Stack>
      </form>
    </Stack>
  );
}
