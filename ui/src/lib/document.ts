/** What the console shows of the OpenAPI document. */
export interface Operation {
  id: string;
  method: string;
  path: string;
  tag: string;
  summary: string;
  description: string;
  parameters: Parameter[];
  /** Media types that it takes; empty where it takes no body. */
  takes: string[];
  body: unknown;
  answers: { status: string; description: string }[];
}

export interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  required: boolean;
  description: string;
  hint: string;
}

type Any = Record<string, unknown>;
const object = (v: unknown): Any => (typeof v === "object" && v !== null ? (v as Any) : {});
const text = (v: unknown): string => (typeof v === "string" ? v : "");

function resolve(doc: Any, schema: unknown): Any {
  let now = object(schema);
  for (let depth = 0; typeof now.$ref === "string" && depth < 10; depth++)
    now = now.$ref
      .slice(2)
      .split("/")
      .reduce<Any>((o, part) => object(o[part]), doc);
  return now;
}

/** An example of what a schema describes: with what must be there. */
export function example(doc: Any, schema: unknown, depth = 0): unknown {
  const s = resolve(doc, schema);
  if (s.example !== undefined) return s.example;
  if (s.default !== undefined && s.default !== null) return s.default;
  if (Array.isArray(s.enum)) return s.enum[0];
  if (Array.isArray(s.allOf)) return example(doc, s.allOf[0], depth);
  if (s.type === "array") return depth > 3 ? [] : [example(doc, s.items, depth + 1)];
  if (s.type === "integer" || s.type === "number") return typeof s.minimum === "number" ? s.minimum : 0;
  if (s.type === "boolean") return false;
  if (s.type === "string") return "";
  const properties = object(s.properties);
  const required = Array.isArray(s.required) && s.required.length > 0 ? s.required : Object.keys(properties);
  if (depth > 3) return {};
  return Object.fromEntries(required.map((name) => [name, example(doc, properties[String(name)], depth + 1)]));
}

function hint(schema: Any): string {
  const parts = [text(schema.type)];
  if (Array.isArray(schema.enum)) parts.push(schema.enum.join(" | "));
  if (schema.minimum !== undefined || schema.maximum !== undefined) parts.push(`${schema.minimum ?? ""}–${schema.maximum ?? ""}`);
  if (schema.default !== undefined) parts.push(`= ${schema.default}`);
  return parts.filter(Boolean).join(" · ");
}

/** The calls of an OpenAPI document, in its order. */
export function operations(document: unknown): Operation[] {
  const doc = object(document);
  return Object.entries(object(doc.paths)).flatMap(([path, methods]) =>
    Object.entries(object(methods))
      .filter(([method]) => ["get", "post", "put", "patch", "delete"].includes(method))
      .map(([method, value]): Operation => {
        const op = object(value);
        const content = object(resolve(doc, op.requestBody).content);
        const takes = Object.keys(content);
        const json = object(content["application/json"]).schema;
        return {
          id: text(op.operationId) || `${method} ${path}`,
          method: method.toUpperCase(),
          path,
          tag: Array.isArray(op.tags) ? text(op.tags[0]) : "",
          summary: text(op.summary),
          description: text(op.description),
          parameters: (Array.isArray(op.parameters) ? op.parameters : []).map((raw) => {
            const p = resolve(doc, raw);
            return {
              name: text(p.name),
              in: text(p.in) as Parameter["in"],
              required: p.required === true,
              description: text(p.description),
              hint: hint(resolve(doc, p.schema)),
            };
          }),
          takes,
          body: json === undefined ? undefined : example(doc, json),
          answers: Object.entries(object(op.responses)).map(([status, answer]) => ({
            status,
            description: text(resolve(doc, answer).description),
          })),
        };
      }),
  );
}

/** The path of a call with its parameters filled in; empty ones of the query are left out. */
export function filled(op: Operation, values: Readonly<Record<string, string>>): string {
  const path = op.path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(values[`path ${name}`] ?? ""));
  const query = new URLSearchParams();
  for (const p of op.parameters) {
    const value = values[`query ${p.name}`];
    if (p.in === "query" && value) query.append(p.name, value);
  }
  const all = query.toString();
  return all ? `${path}?${all}` : path;
}
