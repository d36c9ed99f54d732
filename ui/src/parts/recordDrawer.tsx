import { Alert, Anchor, Button, Drawer, Group, ScrollArea, SegmentedControl, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Download, History, Link2, Send } from "lucide-react";
import { useState } from "react";
import { call } from "../api/client";
import { asInput, keyOf, payloadOf, type Rec, readRecord, recordPath } from "../api/records";
import { topicQuery } from "../app/queries";
import { type Key, useT } from "../i18n";
import { bytesOf, type Field, hexDump, show } from "../lib/decode";
import { bytes } from "../lib/format";
import { indentJSON } from "../lib/json";
import { CopyAs, copyText } from "./copy";
import { useWayBack } from "./dialog";
import { FieldText } from "./fieldText";
import { GatedLink, useMay } from "./gate";
import { saveBlob } from "./save";
import { Loaded } from "./states";
import { Time } from "./time";
import { failed } from "./toast";

const views = ["pretty", "raw", "hex", "headers"] as const;
type View = (typeof views)[number];

/** Of a value so much is laid out (characters); beyond, a browser becomes slow. */
const most = 200_000;

/** Of bytes so many are laid out, at five characters each. */
const mostBytes = most / 5;

/**
 * Of each part so many bytes are read at first: all that is laid out, even of characters of
 * four bytes. To read 20 MB of JSON would hold up the page for a second.
 */
const firstBytes = most * 4;

function inView(whole: Field, view: View): { text: string; odd: boolean } {
  // Cut before anything is made of it: 20 MB in hex would be 60 MB of text.
  const field = whole.value !== null && whole.value.length > most ? { ...whole, value: whole.value.slice(0, most) } : whole;
  const { kind, text } = show(field, "auto");
  if (kind === "null" || kind === "empty" || (kind === "space" && view !== "hex")) return { text, odd: true };
  if (view === "hex" || kind === "binary") return { text: hexDump(bytesOf(field).subarray(0, mostBytes)), odd: false };
  if (view === "pretty" && field === whole) return { text: indentJSON(text) ?? text, odd: false };
  return { text, odd: false };
}

/** How many bytes a field has. */
function sizeOf({ value, encoding }: Field): number {
  if (value === null) return 0;
  if (encoding !== "base64") return new Blob([value]).size;
  return (value.length / 4) * 3 - (value.endsWith("==") ? 2 : value.endsWith("=") ? 1 : 0);
}

function Body({ record, view }: { record: Rec; view: View }) {
  const t = useT();
  if (view === "headers")
    return record.headers.length === 0 ? (
      <Text c="dimmed">{t("record.noHeaders")}</Text>
    ) : (
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("record.headerName")}</Table.Th>
            <Table.Th>{t("record.value")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {record.headers.map((h, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: names may occur twice, and the order never changes
            <Table.Tr key={i}>
              <Table.Td className="tw-mono">{h.name}</Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>
                <FieldText field={{ value: h.value, encoding: h.encoding }} decoder="auto" most={2000} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    );
  const value = payloadOf(record);
  const { text, odd } = inView(value, view);
  const size = record.preview?.value_bytes ?? sizeOf(value);
  const asBytes = view === "hex" || value.encoding === "base64";
  const cut = asBytes ? size > mostBytes : (value.value?.length ?? 0) > most;
  return (
    <>
      {cut && (
        <Alert color="yellow" variant="light" mb="xs" styles={{ message: { color: "inherit" } }}>
          {t("record.cut", { shown: bytes(asBytes ? mostBytes : most), whole: bytes(size) })}
        </Alert>
      )}
      {odd ? <span className="tw-odd">{text}</span> : <pre className="tw-pre">{text}</pre>}
    </>
  );
}

/** One record, with what can be done with it; of a large one the beginning is shown. */
export default function RecordDrawer({ topic, id, close }: { topic: string; id: string; close: () => void }) {
  const t = useT();
  const [view, setView] = useState<View>("pretty");
  const state = useQuery(topicQuery(topic));
  const may = useMay(state.data?.actions, `topic:${topic}`);
  useWayBack();
  const record = useQuery({
    queryKey: ["record", topic, id],
    queryFn: ({ signal }) => readRecord(topic, id, signal, firstBytes),
    staleTime: 60_000,
    gcTime: 10_000,
    placeholderData: undefined,
  });
  const [partition, offset] = id.split(":");
  const copyValue = async (shown: Rec) => {
    try {
      const whole = shown.preview?.truncated ? await readRecord(topic, id) : shown;
      await copyText(whole.value ?? "");
    } catch (error) {
      failed(t("record.copyValue"), error);
    }
  };
  const download = async () => {
    try {
      const answer = await call(recordPath(topic, id), { headers: { Accept: "application/octet-stream" } });
      saveBlob(await answer.blob(), `${topic}-${partition}-${offset}`);
    } catch (error) {
      failed(t("record.download"), error);
    }
  };
  return (
    <Drawer
      opened
      onClose={close}
      returnFocus={false}
      position="right"
      size="lg"
      title={
        <Text fw={600} className="tw-mono">
          {topic} {id}
        </Text>
      }
      closeButtonProps={{ "aria-label": t("act.close") }}
      overlayProps={{ backgroundOpacity: 0.2 }}
    >
      <Loaded of={record}>
        {(r) => (
          <Stack gap="sm">
            <Table variant="vertical" layout="auto" withTableBorder>
              <Table.Tbody>
                <Table.Tr>
                  <Table.Th w={120}>{t("record.time")}</Table.Th>
                  <Table.Td>
                    <Time at={r.timestamp} />{" "}
                    <Text span c="dimmed" size="xs">
                      {r.timestamp_type}
                    </Text>
                  </Table.Td>
                </Table.Tr>
                <Table.Tr>
                  <Table.Th>{t("record.key")}</Table.Th>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>
                    <FieldText field={keyOf(r)} decoder="auto" most={2000} />
                  </Table.Td>
                </Table.Tr>
                <Table.Tr>
                  <Table.Th>{t("record.size")}</Table.Th>
                  <Table.Td>
                    {bytes(r.preview?.key_bytes ?? sizeOf(keyOf(r)))} + {bytes(r.preview?.value_bytes ?? sizeOf(payloadOf(r)))}
                  </Table.Td>
                </Table.Tr>
              </Table.Tbody>
            </Table>
            <Group gap="xs">
              <Button size="compact-sm" variant="default" onClick={() => copyValue(r)}>
                {t("record.copyValue")}
              </Button>
              <Button size="compact-sm" variant="default" leftSection={<Download size={14} aria-hidden />} onClick={download}>
                {t("record.download")}
              </Button>
              <Button
                size="compact-sm"
                variant="default"
                leftSection={<Link2 size={14} aria-hidden />}
                onClick={() => {
                  const url = new URL(window.location.href);
                  url.search = new URLSearchParams({
                    seek: "offset",
                    partition: partition ?? "",
                    offset: offset ?? "",
                    open: id,
                  }).toString();
                  void copyText(url.toString());
                }}
              >
                {t("record.permalink")}
              </Button>
              <GatedLink
                size="compact-sm"
                variant="default"
                reason={may("write")}
                to="/topics/$topic/produce"
                params={{ topic }}
                search={{ from: id }}
                leftSection={<Send size={14} aria-hidden />}
              >
                {t("record.resend")}
              </GatedLink>
              {r.key !== null && r.key_encoding === "text" && r.key !== "" && (
                <GatedLink
                  size="compact-sm"
                  variant="default"
                  reason={null}
                  to="/topics/$topic/messages"
                  params={{ topic }}
                  search={{ q: r.key, in: "key" }}
                  leftSection={<History size={14} aria-hidden />}
                >
                  {t("record.history")}
                </GatedLink>
              )}
              <CopyAs
                size="compact-sm"
                request={() => ({ method: "GET", path: recordPath(topic, id) })}
                cli={() => `tidewire consume ${topic} --from earliest -o json`}
                json={r.preview?.truncated ? undefined : () => asInput(r)}
              />
            </Group>
            <SegmentedControl
              aria-label={t("record.view")}
              value={view}
              onChange={(v) => setView(v as View)}
              data={views.map((v) => ({ value: v, label: t(`record.view.${v}` as Key) }))}
            />
            <ScrollArea.Autosize mah="60vh" type="auto" viewportProps={{ tabIndex: 0, role: "region", "aria-label": t("record.value") }}>
              <Body record={r} view={view} />
            </ScrollArea.Autosize>
            <Text size="xs" c="dimmed">
              {t("record.keysHint")}{" "}
              <Anchor component="button" type="button" size="xs" onClick={close}>
                {t("act.close")}
              </Anchor>
            </Text>
          </Stack>
        )}
      </Loaded>
    </Drawer>
  );
}
