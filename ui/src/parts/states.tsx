import { Alert, Anchor, Button, Center, Group, Skeleton, Stack, Text, Title } from "@mantine/core";
import { CircleAlert, Lock, Unplug } from "lucide-react";
import type { ReactNode } from "react";
import { asProblem } from "../api/problem";
import { type Key, useT } from "../i18n";

export function Loading({ rows = 6 }: { rows?: number }) {
  const t = useT();
  return (
    <Stack gap="xs" role="status" aria-label={t("state.loading")}>
      {Array.from({ length: rows }, (_, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows are alike and never move
        <Skeleton key={i} height={28} radius="sm" />
      ))}
    </Stack>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Center mih={180}>
      <Stack align="center" gap="xs">
        <Text fw={600}>{title}</Text>
        {children}
      </Stack>
    </Center>
  );
}

const titles: Record<string, Key> = {
  forbidden: "problem.forbidden",
  unreachable: "problem.unreachable",
  "not-implemented": "problem.unbuilt",
  "unknown-topic": "problem.unknownTopic",
  "unknown-group": "problem.unknownGroup",
  "group-not-empty": "problem.groupNotEmpty",
  "etag-mismatch": "problem.changed",
  "quorum-unavailable": "problem.quorum",
};

/** Why something is not there, in the node's own words, with a way to try again. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const t = useT();
  const problem = asProblem(error);
  const Icon = problem.status === 403 ? Lock : problem.code === "unreachable" ? Unplug : CircleAlert;
  const details = problem.body.errors?.filter((e) => e.detail !== problem.message) ?? [];
  return (
    <Alert
      color={problem.status === 403 ? "gray" : "red"}
      variant="light"
      icon={<Icon size={20} aria-hidden />}
      title={t(titles[problem.code] ?? "problem.failed")}
      role="alert"
      styles={{ title: { color: "inherit" }, message: { color: "inherit" } }}
    >
      <Stack gap={6}>
        <Text size="sm">{problem.message}</Text>
        {details.map((e) => (
          <Text size="sm" key={e.pointer + e.detail}>
            <code>{e.pointer}</code> {e.detail}
          </Text>
        ))}
        {problem.body.outcome === "unknown" && <Text size="sm">{t("problem.outcomeUnknown")}</Text>}
        <Group gap="sm">
          {retry && problem.status !== 403 && (
            <Button size="compact-sm" variant="default" onClick={retry}>
              {t("state.retry")}
            </Button>
          )}
          {problem.body.request_id && (
            <Text size="xs" c="dimmed">
              {t("problem.requestId")} <code>{problem.body.request_id}</code>
            </Text>
          )}
        </Group>
      </Stack>
    </Alert>
  );
}

interface Loadable<T> {
  data: T | undefined;
  error: unknown;
  isPending: boolean;
  refetch: () => unknown;
  dataUpdatedAt: number;
}

/** A query's data, or what stands in for it: old data stay while a refresh fails, marked as stale. */
export function Loaded<T>({ of, rows, children }: { of: Loadable<T>; rows?: number; children: (data: T) => ReactNode }) {
  const t = useT();
  if (of.data === undefined) return of.error ? <Failure error={of.error} retry={() => of.refetch()} /> : <Loading rows={rows} />;
  return (
    <>
      {of.error ? (
        <Alert color="yellow" variant="light" mb="sm" role="status" styles={{ message: { color: "inherit" } }}>
          {t("state.stale", { time: new Date(of.dataUpdatedAt).toLocaleTimeString() })} {asProblem(of.error).message}{" "}
          <Anchor component="button" type="button" onClick={() => of.refetch()} size="sm">
            {t("state.retry")}
          </Anchor>
        </Alert>
      ) : null}
      {children(of.data)}
    </>
  );
}

export const RoutePending = () => <Loading />;
export function RouteFailure({ error, reset }: { error: unknown; reset?: () => void }) {
  return <Failure error={error} retry={reset ?? (() => window.location.reload())} />;
}

export function PageHead({ title, children, note }: { title: ReactNode; children?: ReactNode; note?: ReactNode }) {
  return (
    <Group justify="space-between" align="flex-start" mb="md" wrap="wrap" gap="sm">
      <Stack gap={2} miw={0}>
        <Title order={1} size="h2" style={{ overflowWrap: "anywhere" }}>
          {title}
        </Title>
        {note && (
          <Text size="sm" c="dimmed" component="div">
            {note}
          </Text>
        )}
      </Stack>
      <Group gap="xs">{children}</Group>
    </Group>
  );
}
