import { quote } from "./shell";

export const sampleKinds = ["curl", "JavaScript", "Python", "CLI"] as const;
export type SampleKind = (typeof sampleKinds)[number];

export interface SampleAsk {
  /** The node's address, with its prefix. */
  base: string;
  group: string;
  topic: string;
}

const curlSample = ({ base, group, topic }: SampleAsk) => `# an API token of yours, see Settings
AUTH="Authorization: Bearer $TIDEWIRE_TOKEN"
MEMBERS=${quote(`${base}/v1/groups/${encodeURIComponent(group)}/members`)}
MEMBER=$(curl -sS --fail-with-body -H "$AUTH" -H "Content-Type: application/json" "$MEMBERS" \\
  -d ${quote(JSON.stringify({ topics: [topic], auto_offset_reset: "earliest" }))} | sed 's/.*"member_id":"\\([^"]*\\)".*/\\1/')
# Reads once. To read on, pass the cursor: records?cursor=$CURSOR
ANSWER=$(curl -sS --fail-with-body -H "$AUTH" "$MEMBERS/$MEMBER/records?wait_ms=5000")
printf '%s\\n' "$ANSWER"
CURSOR=$(printf '%s\\n' "$ANSWER" | sed 's/.*"cursor":"\\([^"]*\\)".*/\\1/')
curl -sS --fail-with-body -H "$AUTH" -H "Content-Type: application/json" "$MEMBERS/$MEMBER/commit" -d "{\\"cursor\\":\\"$CURSOR\\"}"
curl -sS --fail-with-body -H "$AUTH" -X DELETE "$MEMBERS/$MEMBER"`;

const javaScript = ({ base, group, topic }: SampleAsk) => `// TIDEWIRE_TOKEN is an API token of yours, see Settings
const base = ${JSON.stringify(base)}
const headers = { Authorization: \`Bearer \${process.env.TIDEWIRE_TOKEN}\`, "Content-Type": "application/json" }
async function call(method, path, body) {
  const answer = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) })
  const data = answer.status === 204 ? null : await answer.json()
  if (!answer.ok) throw Object.assign(new Error(data.detail), data)
  return data
}

const members = ${JSON.stringify(`/v1/groups/${encodeURIComponent(group)}/members`)}
let member, cursor
for (;;) {
  try {
    member ??= (await call("POST", members, { topics: [${JSON.stringify(topic)}], auto_offset_reset: "earliest" })).member_id
    const got = await call("POST", \`\${members}/\${member}/poll\`, { wait_ms: 5000, ...(cursor && { cursor }) })
    for (const record of got.records) console.log(record.partition, record.offset, record.key, record.value)
    await call("POST", \`\${members}/\${member}/commit\`, { cursor: got.cursor }) // after the work: at least once
    cursor = got.cursor
  } catch (error) {
    if (!["member-expired", "unknown-member"].includes(error.code)) throw error
    member = cursor = undefined // join anew, and read on from what is committed
  }
}`;

const python = ({ base, group, topic }: SampleAsk) => `# TIDEWIRE_TOKEN is an API token of yours, see Settings
import json, os, urllib.error, urllib.request

def call(method, path, body=None):
    req = urllib.request.Request(${JSON.stringify(base)} + path, method=method, data=None if body is None else json.dumps(body).encode())
    req.add_header("Authorization", "Bearer " + os.environ["TIDEWIRE_TOKEN"])
    req.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(req) as answer:
        text = answer.read()
        return json.loads(text) if text else None

members = ${JSON.stringify(`/v1/groups/${encodeURIComponent(group)}/members`)}
member = cursor = None
while True:
    try:
        if member is None:
            member = call("POST", members, {"topics": [${JSON.stringify(topic)}], "auto_offset_reset": "earliest"})["member_id"]
        got = call("POST", f"{members}/{member}/poll", {"wait_ms": 5000, **({"cursor": cursor} if cursor else {})})
        for record in got["records"]:
            print(record["partition"], record["offset"], record["key"], record["value"], flush=True)
        call("POST", f"{members}/{member}/commit", {"cursor": got["cursor"]})  # after the work: at least once
        cursor = got["cursor"]
    except urllib.error.HTTPError as error:
        if json.loads(error.read())["code"] not in ("member-expired", "unknown-member"):
            raise
        member = cursor = None  # join anew, and read on from what is committed`;

const cli = ({ base, group, topic }: SampleAsk) => `# with a login, or an API token of yours in TIDEWIRE_TOKEN
tidewire consume ${quote(topic)} --group=${quote(group)} --from earliest --follow --server ${quote(base)}`;

/** A program that reads a topic as a member of a group, ready to run. */
export const sample = (kind: SampleKind, ask: SampleAsk): string =>
  ({ curl: curlSample, JavaScript: javaScript, Python: python, CLI: cli })[kind](ask);
