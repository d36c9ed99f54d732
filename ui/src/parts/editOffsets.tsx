import { Alert, Button, Group, NumberInput, Select, Stack, Table, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { asProblem } from "../api/problem";
import { type ConsumerGroup, groupQuery } from "../app/queries";
import { useT } from "../i18n";
import { count } from "../lib/format";
import { CopyAs } from "./copy";
import { Dialog } from "./dialog";
import { Scroll } from "./scroll";
import { Failure } from "./states";
import { done } from "./toast";

type Offset = ConsumerGroup["offsets"][number];
const keyOf = (o: { topic: string; partition: number }) => `${o.topic} ${o.partition}`;

/** What somebody typed, where it is another offset than the committed one. */
export function changedOffsets(offsets: Offset[], typed: Readonly<Record<string, string>>): Schemas["CommitOffset"][] {
  return offsets.flatMap((o) => {
    const text = typed[keyOf(o)];
    if (text === undefined || !/^\d+$/.test(text) || !Number.isSafeInteger(Number(text)) || Number(text) === o.next_offset) return [];
    return [{ topic: o.topic, partition: o.partition, next_offset: Number(text), metadata: o.metadata }];
  });
}

/**
 * Sets committed offsets by hand. Only what was changed is sent, for the state of the group
 * that is shown; where it has moved on meanwhile, what is committed now stands beside what
 * was typed, and nothing typed is lost.
 */
export function EditOffsets({ group: first, close }: { group: ConsumerGroup; close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const [group, setGroup] = useState(first);
  const topics = [...new Set(group.offsets.map((o) => o.topic))].sort();
  const [topic, setTopic] = useState(topics[0] ?? "");
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [moved, setMoved] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const changes = changedOffsets(group.offsets, typed);
  const save = async () => {
    setBusy(true);
    setError(null);
    setMoved(false);
    const path = { group: group.group };
    try {
      await take(
        api.PUT("/v1/groups/{group}/offsets", {
          params: { path, header: { "If-Match": `"${group.etag}"` } },
          body: { offsets: changes },
        }),
      );
      done(t("offsets.saved", { n: changes.length }));
      void client.invalidateQueries({ queryKey: groupQuery(group.group).queryKey });
      close();
    } catch (e) {
      const problem = asProblem(e);
      if (problem.code === "etag-mismatch") {
        const now = await client.fetchQuery({ ...groupQuery(group.group), staleTime: 0 }).catch(() => null);
        if (now) setGroup(now);
        setMoved(now !== null);
        if (!now) setError(problem);
      } else setError(problem);
      setBusy(false);
    }
  };
  return (
    <Dialog close={close} title={t("offsets.edit")} size="lg">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (changes.length > 0 && !busy) void save();
        }}
      >
        <Stack gap="sm">
          <Text size="sm">{t("offsets.text")}</Text>
          {topics.length > 1 && (
            <Select
              label={t("topic.one")}
              data={topics}
              value={topic}
              onChange={(v) => setTopic(v ?? topic)}
              allowDeselect={false}
              searchable
            />
          )}
          <Scroll label={t("offsets.title")}>
            <Table miw={460}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t("topic.partition")}</Table.Th>
                  <Table.Th ta="right">{t("offsets.next")}</Table.Th>
                  <Table.Th ta="right">{t("partitions.hw")}</Table.Th>
                  <Table.Th>{t("offsets.then")}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {group.offsets
                  .filter((o) => o.topic === topic)
                  .slice(0, 500)
                  .map((o) => (
                    <Table.Tr key={keyOf(o)}>
                      <Table.Td>{o.partition}</Table.Td>
                      <Table.Td ta="right">{o.next_offset ?? t("reset.none")}</Table.Td>
                      <Table.Td ta="right">{o.high_watermark ?? "–"}</Table.Td>
                      <Table.Td>
                        <NumberInput
                          size="xs"
                          aria-label={t("offsets.of", { partition: o.partition })}
                          min={0}
                          allowDecimal={false}
                          allowNegative={false}
                          hideControls
                          value={typed[keyOf(o)] ?? o.next_offset ?? ""}
                          onChange={(v) => setTyped((old) => ({ ...old, [keyOf(o)]: String(v) }))}
                        />
                      </Table.Td>
                    </Table.Tr>
                  ))}
              </Table.Tbody>
            </Table>
          </Scroll>
          {moved && (
            <Alert color="yellow" variant="light" role="alert" styles={{ message: { color: "inherit" } }}>
              {t("offsets.moved")}
            </Alert>
          )}
          {error ? <Failure error={error} /> : null}
          <Group justify="space-between">
            <CopyAs
              request={() => ({
                method: "PUT",
                path: `/v1/groups/${encodeURIComponent(group.group)}/offsets`,
                body: { offsets: changes },
              })}
              json={() => ({ offsets: changes })}
            />
            <Group gap="xs">
              <Button variant="default" onClick={close}>
                {t("act.cancel")}
              </Button>
              <Button type="submit" color="red" loading={busy} disabled={changes.length === 0}>
                {t("offsets.save", { n: changes.length, count: count(changes.length) })}
              </Button>
            </Group>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}
