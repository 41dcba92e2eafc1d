// Units by kind, each with its factor to the first unit of its kind and its offset.
export const UNITS = {
  length: { m: [1], km: [1000], cm: [0.01], mi: [1609.344], ft: [0.3048], in: [0.0254] },
  mass: { kg: [1], g: [0.001], lb: [0.45359237], oz: [0.028349523125] },
  temperature: { K: [1], C: [1, 273.15], F: [5 / 9, 273.15 - (32 * 5) / 9] },
};

export function convert(value, from, to) {
  for (const units of Object.values(UNITS)) {
    if (!Object.hasOwn(units, from) || !Object.hasOwn(units, to)) continue;
    const [a, shiftA = 0] = units[from];
    const [b, shiftB = 0] = units[to];
    return Number(((value * a + shiftA - shiftB) / b).toPrecision(12));
  }
  throw new Error(`${from} and ${to} are not units of one kind that are known here`);
}
