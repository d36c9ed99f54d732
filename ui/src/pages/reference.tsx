import { Anchor, Badge, Button, Code, Group, Paper, Stack, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Search } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { call, send } from "../api/client";
import { asProblem } from "../api/problem";
import { apiSearch, usePageSearch } from "../app/search";
import { useT } from "../i18n";
import { filled, type Operation, operations } from "../lib/document";
import { bytes } from "../lib/format";
import { prefix } from "../lib/prefix";
import { CopyAs, type HttpRequest } from "../parts/copy";
import { Empty, Failure, Loaded, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

const colors: Record<string, string> = { GET: "blue", POST: "teal", PUT: "yellow", PATCH: "yellow", DELETE: "red" };

/** The calls of the node, by its own document, each to be tried with the rights of whoever is logged in. */
export function ReferencePage() {
  const t = useT();
  usePageTitle(t("nav.api"));
  const [search, change] = usePageSearch(apiSearch);
  const document = useQuery({
    queryKey: ["openapi"],
    queryFn: async () => operations(await (await call("/openapi.json")).json()),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const q = (search.q ?? "").toLowerCase();
  return (
    <Stack>
      <PageHead title={t("nav.api")} note={t("api.note")}>
        <Anchor href={`${prefix}/openapi.json`} size="sm">
          {t("about.openapi")}
        </Anchor>
        <Anchor href={`${prefix}/docs`} size="sm">
          {t("about.docs")}
        </Anchor>
      </PageHead>
      <TextInput
        data-search
        aria-label={t("api.search")}
        placeholder={t("api.search")}
        leftSection={<Search size={16} aria-hidden />}
        value={search.q ?? ""}
        onChange={(e) => change({ q: e.currentTarget.value || undefined }, { replace: true })}
        w={{ base: "100%", sm: 320 }}
      />
      <Loaded of={document}>
        {(all) => {
          const found = all.filter((o) => `${o.method} ${o.path} ${o.summary} ${o.tag}`.toLowerCase().includes(q));
          const tags = [...new Set(found.map((o) => o.tag))];
          if (found.length === 0) return <Empty title={t("api.none")} />;
          return tags.map((tag) => (
            <section key={tag} aria-label={tag}>
              <Title order={2} size="h4" mb="xs">
                {tag}
              </Title>
              <Paper withBorder radius="md">
                {found
                  .filter((o) => o.tag === tag)
                  .map((o) => (
                    <Row
                      key={o.id}
                      operation={o}
                      open={search.open === o.id}
                      toggle={(open) => change({ open: open ? o.id : undefined })}
                    />
                  ))}
              </Paper>
            </section>
          ));
        }}
      </Loaded>
    </Stack>
  );
}

function Row({ operation: o, open, toggle }: { operation: Operation; open: boolean; toggle: (open: boolean) => void }) {
  const row = useRef<HTMLDivElement>(null);
  // An address that names a call leads to it.
  // biome-ignore lint/correctness/useExhaustiveDependencies: only when the page is opened
  useEffect(() => {
    if (open) row.current?.scrollIntoView({ block: "start" });
  }, []);
  return (
    <div className="tw-operation" ref={row}>
      <button type="button" className="tw-operation-head" aria-expanded={open} onClick={() => toggle(!open)}>
        <Badge variant="outline" color={colors[o.method] ?? "gray"} c="inherit" w={76}>
          {o.method}
        </Badge>
        <span className="tw-mono" style={{ overflowWrap: "anywhere" }}>
          {o.path}
        </span>
        <Text span size="sm" c="dimmed">
          {o.summary}
        </Text>
      </button>
      {open && <Try operation={o} />}
    </div>
  );
}

interface Answer {
  status: number;
  type: string;
  ms: number;
  size: number;
  text: string;
}

/** Of an answer's body so much is shown. */
const shownBytes = 100_000;

function Try({ operation: o }: { operation: Operation }) {
  const t = useT();
  const [values, setValues] = useState<Record<string, string>>({});
  const [body, setBody] = useState(() => (o.body === undefined ? "" : JSON.stringify(o.body, null, 2)));
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const headers = () => ({
    ...(o.takes.length > 0 && body !== ""
      ? { "Content-Type": o.takes.includes("application/json") ? "application/json" : (o.takes[0] ?? "") }
      : {}),
    ...Object.fromEntries(
      o.parameters.filter((p) => p.in === "header" && values[`header ${p.name}`]).map((p) => [p.name, values[`header ${p.name}`] ?? ""]),
    ),
  });
  const request = (): HttpRequest => ({
    method: o.method as HttpRequest["method"],
    path: filled(o, values),
    headers: headers(),
    ...(o.takes.length > 0 && body !== "" ? { body } : {}),
  });
  const run = async () => {
    setBusy(true);
    setError(null);
    const began = performance.now();
    try {
      const { method, path, body: sent } = request();
      const got = await send(
        new Request(new URL(prefix + path, window.location.origin), {
          method,
          headers: headers(),
          ...(sent ? { body: String(sent) } : {}),
        }),
      );
      const blob = await got.blob();
      setAnswer({
        status: got.status,
        type: got.headers.get("Content-Type") ?? "",
        ms: Math.round(performance.now() - began),
        size: blob.size,
        text: await blob.slice(0, shownBytes).text(),
      });
    } catch (e) {
      setError(asProblem(e));
    } finally {
      setBusy(false);
    }
  };
  const missing = o.parameters.some((p) => p.required && !values[`${p.in} ${p.name}`]);
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        if (!missing && !busy) void run();
      }}
    >
      <Stack gap="sm" p="md">
        {o.description && (
          <Text size="sm" style={{ whiteSpace: "pre-wrap" }}>
            {o.description}
          </Text>
        )}
        {o.parameters.map((p) => (
          <TextInput
            key={`${p.in} ${p.name}`}
            label={p.name}
            description={[p.in, p.hint, p.description].filter(Boolean).join(" · ")}
            required={p.required}
            value={values[`${p.in} ${p.name}`] ?? ""}
            onChange={(e) => {
              const value = e.currentTarget.value;
              setValues((old) => ({ ...old, [`${p.in} ${p.name}`]: value }));
            }}
            maw={520}
          />
        ))}
        {o.takes.length > 0 && (
          <Textarea
            label={t("api.body")}
            description={o.takes.join(", ")}
            autosize
            minRows={3}
            maxRows={16}
            styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }}
            value={body}
            onChange={(e) => setBody(e.currentTarget.value)}
          />
        )}
        <Group gap="sm">
          <Button type="submit" color={o.method === "DELETE" ? "red" : undefined} loading={busy} disabled={missing}>
            {t("api.send")}
          </Button>
          <CopyAs request={request} />
          {o.method !== "GET" && (
            <Text size="sm" c="dimmed">
              {t("api.real")}
            </Text>
          )}
        </Group>
        {error ? <Failure error={error} /> : null}
        {answer && (
          <section aria-label={t("api.answer")}>
            <Text size="sm" fw={600} role="status">
              {answer.status} · {answer.type || t("api.empty")} · {bytes(answer.size)} · {answer.ms} ms
            </Text>
            {answer.text !== "" && (
              <Code block tabIndex={0} style={{ maxHeight: 400, overflow: "auto", whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
                {answer.text}
              </Code>
            )}
            {answer.size > shownBytes && <Text size="sm">{t("record.cut", { shown: bytes(shownBytes), whole: bytes(answer.size) })}</Text>}
          </section>
        )}
        <Text size="sm" c="dimmed">
          {o.answers.map((a) => a.status).join(" · ")}
        </Text>
      </Stack>
    </form>
  );
}
