import { Group, Paper, Radio, Stack, Title, useMantineColorScheme } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, take } from "../api/client";
import { asProblem } from "../api/problem";
import { timeMode } from "../app/prefs";
import { configSearch, usePageSearch } from "../app/search";
import { session } from "../app/session";
import { themeNames, themes } from "../app/shell";
import { language, useT } from "../i18n";
import { useStore } from "../lib/store";
import { ConfigEditor } from "../parts/configEditor";
import { useMay } from "../parts/gate";
import { PasswordForm } from "../parts/password";
import { Failure, Loading, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";
import { Tokens } from "../parts/tokens";

export function SettingsPage() {
  const t = useT();
  usePageTitle(t("nav.settings"));
  const { me } = useStore(session);
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const mode = useStore(timeMode);
  const lang = useStore(language);
  return (
    <Stack maw={980}>
      <PageHead title={t("nav.settings")} />
      <Paper withBorder p="md" radius="md" component="section" aria-labelledby="look">
        <Stack>
          <Title order={2} size="h4" id="look">
            {t("settings.look")}
          </Title>
          <Radio.Group label={t("switch.theme")} value={colorScheme} onChange={(v) => setColorScheme(v as typeof colorScheme)}>
            <Group mt={4}>
              {themes.map((theme) => (
                <Radio key={theme} value={theme} label={t(themeNames[theme])} />
              ))}
            </Group>
          </Radio.Group>
          <Radio.Group label={t("settings.language")} value={lang} onChange={(v) => language.set(v as typeof lang)}>
            <Group mt={4}>
              <Radio value="en" label="English" />
              <Radio value="zh-CN" label="简体中文" />
            </Group>
          </Radio.Group>
          <Radio.Group label={t("switch.time")} value={mode} onChange={(v) => timeMode.set(v as typeof mode)}>
            <Group mt={4}>
              <Radio value="local" label={t("time.local")} />
              <Radio value="utc" label="UTC" />
              <Radio value="relative" label={t("time.relative")} />
            </Group>
          </Radio.Group>
        </Stack>
      </Paper>
      {me && (
        <>
          <Paper withBorder p="md" radius="md" component="section" aria-labelledby="own-password">
            <Title order={2} size="h4" mb="sm" id="own-password">
              {t("settings.password")}
            </Title>
            <PasswordForm username={me.username} own />
          </Paper>
          <Paper withBorder p="md" radius="md" component="section" aria-labelledby="own-tokens">
            <Title order={2} size="h4" mb="sm" id="own-tokens">
              {t("settings.tokens")}
            </Title>
            <Tokens username={me.username} />
          </Paper>
        </>
      )}
      <ClusterSettings />
    </Stack>
  );
}

function ClusterSettings() {
  const t = useT();
  const client = useQueryClient();
  const [search, change] = usePageSearch(configSearch);
  const load = () => take(api.GET("/v1/cluster/config"));
  const config = useQuery({ queryKey: ["cluster-config"], queryFn: load, retry: false });
  const reason = useMay(config.data?.actions, "cluster")("alter-configs");
  if (config.error && asProblem(config.error).status === 403) return null;
  return (
    <section aria-labelledby="cluster-settings">
      <Title order={2} size="h3" mb="sm" id="cluster-settings">
        {t("settings.cluster")}
      </Title>
      {config.data ? (
        <ConfigEditor
          config={config.data}
          reason={reason}
          q={search.q}
          modified={search.modified === "true"}
          onFilter={(next) => change(next, { replace: true })}
          save={async (patch, etag) => {
            const next = await take(api.PATCH("/v1/cluster/config", { params: { header: { "If-Match": `"${etag}"` } }, body: patch }));
            client.setQueryData(["cluster-config"], next);
            return next;
          }}
          reload={() => client.fetchQuery({ queryKey: ["cluster-config"], queryFn: load, staleTime: 0 })}
        />
      ) : config.error ? (
        <Failure error={config.error} retry={() => config.refetch()} />
      ) : (
        <Loading />
      )}
    </section>
  );
}
