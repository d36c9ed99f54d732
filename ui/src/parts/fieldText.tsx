import { type Decoder, type Field, show } from "../lib/decode";

/** A key or value in one line: null, "", white space and bytes look different from any text. */
export function FieldText({ field, decoder, most = 400 }: { field: Field; decoder: Decoder; most?: number }) {
  const { kind, text } = show(
    field.value !== null && field.value.length > most * 2 ? { ...field, value: field.value.slice(0, most * 2 - ((most * 2) % 4)) } : field,
    decoder,
  );
  const cut = text.length > most ? `${text.slice(0, most)}…` : text;
  return kind === "text" ? (
    <span className="tw-mono">{cut}</span>
  ) : (
    <span className={kind === "binary" ? "tw-mono" : "tw-odd"} data-kind={kind}>
      {kind === "binary" && <span className="tw-odd">bytes</span>} {cut}
    </span>
  );
}
