// All tensors: found by words, filtered, sorted.
const list = $('list');
const MORE_ROWS = 500;
let rowsShown = 100;
// Where something is out: the first of it, not the worst, which are states of
// the optimizer. Else what is closest to its bound.
let sortBy = culprits.size ? 0 : 5;
let isDescending = !culprits.size;
const SORT_KEYS = [
  (i) => i, fqnOf, roleOf, iterationOf, (i) => T.sev[i],
  (i) => (NOT_NUMBERS.has(T.sev[i]) ? -1 : T.h[i]), legNameOf, (i) => T.ih[i],
  (i) => D.ranks[T.ranks[i]],
];
const DESCENDING_FIRST = [4, 5, 7];

const findBox = el('input', { type: 'search', placeholder: 'name, role, argument, reason ( / )',
  ariaLabel: 'Search tensors' });
const choice = (label, values) => el('select', { ariaLabel: label },
  el('option', { value: '', textContent: `all ${label}` }),
  ...values.map((v) => el('option', { value: v, textContent: v.replace(/_/g, ' ') })));
const roleChoice = choice('roles', [...new Set(D.slots.map((slot) => slot[0]))]);
const verdictChoice = choice('verdicts', D.verdicts);
const onlyChoice = choice('iterations', D.its.map(String));
const shownCount = el('span', { className: 'muted', role: 'status' });

const matches = () => {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = [];
  for (let i = 0; i < N; i++) {
    if (state.role && roleOf(i) !== state.role) continue;
    if (state.verdict && verdictOf(i) !== state.verdict) continue;
    if (state.only && String(iterationOf(i)) !== state.only) continue;
    if (words.length) {
      const text = `${shownName(i)} ${roleOf(i)} ${argOf(i)} ${D.reasons[T.why[i]]}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    hits.push(i);
  }
  const key = SORT_KEYS[sortBy];
  const sign = isDescending ? -1 : 1;
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return hits.sort((a, b) => sign * order(key(a), key(b)) || a - b);
};

const drawTensorRow = (i) => {
  const td = (text, className = '') => el('td', { className, textContent: text });
  const link = el('a', { href: '#tensor=' + keys[i], textContent: shownName(i) });
  const tr = el('tr', { className: i === state.tensor ? 'sel' : '' },
    td(i, 'num'), el('td', { className: 'fqn' }, link),
    el('td', {}, roleOf(i) + ' ', el('span', { className: 'muted', textContent: argOf(i) })),
    td(iterationOf(i), 'num'),
    el('td', {}, el('i', { className: 'k s' + T.sev[i] }), verdictOf(i).replace(/_/g, ' ')),
    td(headroomOf(i), 'num'), td(legNameOf(i)),
    td(T.isev[i] > 2 ? headroomWords(value(T.ih[i])) : '\u2013', 'num'),
    td(D.ranks[T.ranks[i]]));
  tr.dataset.tensor = i;
  return tr;
};

const drawList = () => {
  const hits = matches();
  list.tBodies[0].replaceChildren(...hits.slice(0, rowsShown).map(drawTensorRow));
  shownCount.textContent = `${count(hits.length)} of ${count(N)}`;
  const left = hits.length - rowsShown;
  const more = button(`Show ${count(Math.min(MORE_ROWS, left))} more`, () => {
    rowsShown += MORE_ROWS;
    drawList();
  });
  $('more').replaceChildren(...(left > 0 ? [more] : []));
  [...list.tHead.rows[0].cells].forEach((th, k) => {
    th.ariaSort = k !== sortBy ? 'none' : isDescending ? 'descending' : 'ascending';
  });
};

const showFilters = () => {
  findBox.value = state.find;
  roleChoice.value = state.role;
  verdictChoice.value = state.verdict;
  onlyChoice.value = state.only;
};

const tableTools = () => {
  $('filters').append(findBox, roleChoice, verdictChoice, onlyChoice, shownCount);
  $('filters').hidden = false;
  const listen = (box, name) => box.addEventListener('input', () => {
    rowsShown = 100;
    go({ [name]: box.value });
  });
  // Words search all tensors, also those that the page does not begin with.
  findBox.addEventListener('input', () => {
    const find = findBox.value;
    const begins = find && !state.find && state.verdict === initial.verdict;
    rowsShown = 100;
    go(begins ? { find, verdict: '' } : { find });
  });
  findBox.addEventListener('keydown', (event) => {
    const first = event.key === 'Enter' ? matches()[0] : undefined;
    if (first !== undefined) go({ tensor: first });
  });
  listen(roleChoice, 'role');
  listen(verdictChoice, 'verdict');
  listen(onlyChoice, 'only');
  [...list.tHead.rows[0].cells].forEach((th, k) => {
    th.replaceChildren(button(th.textContent, () => {
      isDescending = sortBy === k ? !isDescending : DESCENDING_FIRST.includes(k);
      sortBy = k;
      drawList();
    }));
  });
  list.tBodies[0].addEventListener('click', (event) => {
    const row = event.target.closest('tr[data-tensor]');
    if (!row || event.target.closest('a')) return;
    go({ tensor: +row.dataset.tensor });
  });
};
