import { Alert, Button, Code, Group, NumberInput, Stack, Table, Text, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { allItems } from "../app/queries";
import { useT } from "../i18n";
import { copyText } from "./copy";
import { Danger } from "./danger";
import { Dialog } from "./dialog";
import { Scroll } from "./scroll";
import { Failure, Loaded } from "./states";
import { Time } from "./time";
import { done } from "./toast";

/** A user's API tokens: a new one is shown once. */
export function Tokens({ username }: { username: string }) {
  const t = useT();
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [days, setDays] = useState<number | string>(90);
  const [made, setMade] = useState<Schemas["TokenCreated"] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [deleting, setDeleting] = useState<Schemas["Token"] | null>(null);
  const key = ["tokens", username];
  const tokens = useQuery({
    queryKey: key,
    queryFn: () =>
      allItems((page_token) =>
        take(api.GET("/v1/users/{username}/tokens", { params: { path: { username }, query: { limit: 500, page_token } } })),
      ),
  });
  const create = async () => {
    setError(null);
    try {
      const body = { name, ...(days === "" ? {} : { expires_in_s: Number(days) * 86_400 }) };
      setMade(await take(api.POST("/v1/users/{username}/tokens", { params: { path: { username } }, body })));
      setName("");
      void client.invalidateQueries({ queryKey: key });
    } catch (e) {
      setError(e);
    }
  };
  return (
    <Stack>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void create();
        }}
      >
        <Group align="flex-end">
          <TextInput
            label={t("tokens.name")}
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
            required
            withAsterisk={false}
            flex="1 1 160px"
            autoComplete="off"
          />
          <NumberInput
            label={t("tokens.days")}
            placeholder={t("tokens.noEnd")}
            value={days}
            onChange={setDays}
            min={1}
            max={3650}
            allowDecimal={false}
            w={150}
          />
          <Button type="submit">{t("tokens.create")}</Button>
        </Group>
      </form>
      {error ? <Failure error={error} /> : null}
      {made && (
        <Alert
          color="teal"
          variant="light"
          title={t("tokens.made", { name: made.name })}
          role="status"
          styles={{ title: { color: "inherit" }, message: { color: "inherit" } }}
          withCloseButton
          closeButtonLabel={t("act.close")}
          onClose={() => setMade(null)}
        >
          <Text size="sm">{t("tokens.once")}</Text>
          <Code block style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>
            {made.token}
          </Code>
          <Button size="compact-sm" mt="xs" onClick={() => copyText(made.token)}>
            {t("copy.one")}
          </Button>
        </Alert>
      )}
      <Loaded of={tokens} rows={3}>
        {(items) =>
          items.length === 0 ? (
            <Text size="sm" c="dimmed">
              {t("tokens.none")}
            </Text>
          ) : (
            <Scroll label={t("tokens.title")}>
              <Table miw={560}>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t("tokens.name")}</Table.Th>
                    <Table.Th>{t("tokens.expires")}</Table.Th>
                    <Table.Th>{t("tokens.used")}</Table.Th>
                    <Table.Th aria-label={t("act.delete")} />
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {items.map((x) => (
                    <Table.Tr key={x.id}>
                      <Table.Td>{x.name}</Table.Td>
                      <Table.Td>{x.expires_at ? <Time at={x.expires_at} /> : t("tokens.noEnd")}</Table.Td>
                      <Table.Td>{x.last_used_at ? <Time at={x.last_used_at} /> : t("tokens.never")}</Table.Td>
                      <Table.Td>
                        <Button
                          size="compact-sm"
                          color="red"
                          variant="light"
                          onClick={() => setDeleting(x)}
                          aria-label={t("tokens.deleteOne", { name: x.name })}
                        >
                          {t("act.delete")}
                        </Button>
                      </Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Scroll>
          )
        }
      </Loaded>
      {deleting && (
        <Danger
          title={t("tokens.deleteOne", { name: deleting.name })}
          action={t("act.delete")}
          impact={t("tokens.deleteImpact")}
          close={() => setDeleting(null)}
          run={async () => {
            await take(api.DELETE("/v1/users/{username}/tokens/{id}", { params: { path: { username, id: deleting.id } } }));
            done(t("tokens.deleted"));
            void client.invalidateQueries({ queryKey: key });
          }}
        />
      )}
    </Stack>
  );
}

export function TokensDialog({ username, close }: { username: string; close: () => void }) {
  const t = useT();
  return (
    <Dialog close={close} title={`${t("tokens.title")}: ${username}`} size="lg">
      <Tokens username={username} />
    </Dialog>
  );
}
