// Elements, and numbers in words.
const el = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};
const svg = (tag, attributes = {}, text) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  return made;
};
const button = (text, onclick) => el('button', { type: 'button', textContent: text, onclick });
const count = (n) => n.toLocaleString('en');

// Two digits, as the rest of the page has them.
const inWords = (x, digits) => {
  if (x === null) return '\u2013';
  if (x === Infinity) return '\u221e';
  if (Number.isNaN(x)) return 'NaN';
  return x === 0 ? '0' : digits(x);
};
const errorWords = (x) => inWords(x, (v) =>
  v.toExponential(1).replace(/e([+-])(\d)$/, 'e$10$2'));
const headroomWords = (x) => inWords(x, (v) => {
  if (v >= 0.01 && v < 10) return String(+v.toPrecision(2));
  return v >= 10 && v < 1e6 ? count(+v.toPrecision(2)) : v.toExponential(1).replace('+', '');
});
// In a cell of the map.
const shortHeadroom = (x) => inWords(x, (v) => {
  if (v >= 1000) return v.toExponential(0).replace('+', '');
  return v >= 10 ? String(Math.round(v)) : v.toFixed(1);
});

// Out, and within its bound: not the headroom decides, but that it must be equal.
const isOutWithinBound = (severity, headroom) => severity === MUST_BE_EQUAL && headroom <= 1;
const mustBeEqual = (i) => isOutWithinBound(T.sev[i], value(T.h[i]));
const decidedBy = (i) => (D.copies[T.copies[i]][1] ?
  'its copies differ, and must be equal' : 'it must be equal, and is not');
const headroomOf = (i) => {
  if (NOT_NUMBERS.has(T.sev[i])) return '\u2013';
  return mustBeEqual(i) ? '\u2260' : headroomWords(value(T.h[i]));
};
const causeWords = (i) => {
  if (culprits.has(i)) return 'named as a fault';
  if (sameFault.has(i)) return 'shows the same fault';
  return downstream.has(i) ? 'downstream of a fault' : '';
};
const tensorWords = (i) => {
  const lines = [`${shownName(i)}  ${roleOf(i)} ${argOf(i)}`, D.severity[T.sev[i]]];
  if (mustBeEqual(i)) lines[1] = decidedBy(i);
  else if (!NOT_NUMBERS.has(T.sev[i])) lines[1] += `; headroom ${headroomOf(i)}`;
  if (legNameOf(i)) lines[1] += ` in ${legNameOf(i)}`;
  if (causeWords(i)) lines.push(causeWords(i));
  return lines.join('\n');
};
const isolatedWords = (i) => {
  if (T.isev[i] === 1) return 'not everything it works on was replaced: says nothing by itself';
  const words = D.severity[T.isev[i]];
  return NOT_NUMBERS.has(T.isev[i]) ? words : `${words}; headroom ${headroomWords(value(T.ih[i]))}`;
};
// The number that was cut out of it is the bound by the factor behind it.
const provenanceWords = (leg) => {
  const text = D.kinds[L.kind[leg]][3];
  const factor = /\{\} x ([\d.]+(?:e[+-]\d+)?)/.exec(text);
  const bound = value(L.b[leg]);
  return text.replace('{}', () => (factor && bound ? errorWords(bound / +factor[1]) : '\u2026'));
};

const tip = $('tip');
const hideTip = () => { tip.hidden = true; };
const showTip = (text, x, y) => {
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + 'px';
  tip.style.top = Math.max(4, Math.min(y + 16, innerHeight - tip.offsetHeight - 8)) + 'px';
};
