// The map: a row a module, a column a kind of tensor; left as it was, right
// isolated.
const grid = $('grid');
const MOST_ROWS = 1200; // more take a browser seconds
const isIsolated = N > 0 && T.isev.some((severity) => severity > 0);
const ISOLATED_COLUMNS = [1, 2, 3, 4, 5, 6];
const mapColumns = D.columns.map(([label, group], k) => ({ k, label, group, isolated: false }));
if (isIsolated) {
  for (const k of ISOLATED_COLUMNS) {
    mapColumns.push({ k, label: D.columns[k][0], group: D.columns[k][1], isolated: true });
  }
}
const startsGroup = (j) => j > 0 && (mapColumns[j - 1].group !== mapColumns[j].group ||
  mapColumns[j - 1].isolated !== mapColumns[j].isolated);
const groupWords = { forward: 'forward \u2193', backward: 'backward \u2191' };
let onlyOut = false;
let rowLimit = MOST_ROWS;

const mapHead = () => {
  const over = el('tr', {}, el('td'));
  const groups = el('tr', {}, el('td'));
  const labels = el('tr', {}, el('td'));
  const wide = mapColumns.filter((c) => !c.isolated).length + 4;
  over.append(el('th', { scope: 'colgroup', colSpan: wide, textContent: 'as it was, end to end' }));
  if (isIsolated) {
    over.append(el('td'), el('th', {
      scope: 'colgroup', colSpan: ISOLATED_COLUMNS.length + 2,
      textContent: 'isolated: no error passes through',
    }));
  }
  mapColumns.forEach((column, j) => {
    if (startsGroup(j)) for (const row of [groups, labels]) row.append(el('td'));
    if (j === 0 || startsGroup(j)) {
      groups.append(el('th', {
        scope: 'colgroup', textContent: groupWords[column.group] ?? column.group,
        colSpan: mapColumns.filter(
          (c) => c.group === column.group && c.isolated === column.isolated).length,
      }));
    }
    labels.append(el('th', { scope: 'col', textContent: column.label }));
  });
  return el('thead', {}, over, groups, labels);
};

// The worst of `list` in one column, and how many of them are out.
const cellOf = (list, column) => {
  const severities = column.isolated ? T.isev : T.sev;
  const headrooms = column.isolated ? T.ih : T.h;
  const cell = { best: -1, worst: 0, out: 0, n: 0, mark: '' };
  for (const i of list) {
    if (iterationOf(i) !== state.iteration || columnOf(i) !== column.k) continue;
    const severity = severities[i];
    if (!severity) continue;
    cell.n++;
    cell.out += severity >= OUT;
    const isWorse = severity > cell.worst || (severity === cell.worst &&
      (headrooms[i] > headrooms[cell.best] || culprits.has(i)));
    if (isWorse && !(culprits.has(cell.best) && severity === cell.worst)) {
      cell.worst = severity;
      cell.best = i;
    }
    if (column.isolated && severity < OUT) continue;
    if (culprits.has(i)) cell.mark = 'cul';
    else if (sameFault.has(i) && cell.mark !== 'cul') cell.mark = 'aff';
    else if (downstream.has(i) && !cell.mark) cell.mark = 'down';
  }
  return cell;
};

const drawCell = (node, column, cell) => {
  const td = el('td', { className: 's' + cell.worst, tabIndex: -1 });
  td.setAttribute('role', 'gridcell');
  td.dataset.tensor = cell.best;
  td.dataset.n = cell.n;
  td.dataset.out = cell.out;
  if (column.isolated) td.dataset.isolated = 1;
  const headroom = value((column.isolated ? T.ih : T.h)[cell.best]);
  if (cell.worst >= OUT || cell.worst === 6) {
    td.textContent = isOutWithinBound(cell.worst, headroom) ? '\u2260' : shortHeadroom(headroom);
  }
  if (cell.mark) td.classList.add(cell.mark);
  if (cell.mark === 'cul') td.textContent = '\u25b8' + td.textContent;
  if (cell.n > 1 && cell.out && cell.out < cell.n) {
    // How many of those below are out, which their worst does not say.
    const share = el('i', { className: 'share' });
    share.style.width = Math.max(6, 100 * cell.out / cell.n) + '%';
    td.append(share);
  }
  describeCell(td, node, column, cell);
  return td;
};
const describeCell = (td, node, column, cell) => {
  td.ariaLabel = `${node.label} ${column.isolated ? 'isolated ' : ''}${column.label}: ` +
    `${D.severity[cell.worst]} ${td.textContent}`;
};

// A culprit that no tensor shows: of the cell that its tensor would be in.
const markStated = (td, node, column, list) => {
  const here = list.filter((one) => one.column === column.k);
  if (!here.length || column.isolated) return td;
  if (!('tensor' in td.dataset)) {
    td.tabIndex = -1;
    td.setAttribute('role', 'gridcell');
  }
  td.dataset.place = here[0].place;
  td.classList.add('cul');
  if (!td.textContent.startsWith('\u25b8')) td.prepend('\u25b8' + here[0].letters);
  td.ariaLabel = `${node.label} ${column.label}: ${statedWords(here)}`;
  return td;
};
const statedWords = (list) => list.map((one) =>
  `${one.fqn || '(model)'} ${one.role}: named as a fault, class ${one.letters || 'not named'}, ` +
  'by what the runs say of themselves').join('\n');

const drawRow = (node) => {
  const isOpen = opened.has(node);
  const list = isOpen ? node.own : node.all;
  const tr = el('tr', { className: node.parameter ? 'parameter' : '' });
  tr.setAttribute('role', 'row');
  tr.setAttribute('aria-level', node.depth + 1);
  const module = modules.get(node.path);
  const th = el('th', { scope: 'row', tabIndex: -1 });
  th.title = node.path.replace(ITERATION_MARK, '') +
    (module ? `\n${module.name}${module.file ? ` ${module.file}:${module.line}` : ''}` : '');
  const label = el('span', { className: 'd' + Math.min(node.depth, 6) });
  if (node.list.length) {
    tr.setAttribute('aria-expanded', isOpen);
    label.append(el('span', { className: 'twist', textContent: isOpen ? '\u25be' : '\u25b8',
      ariaHidden: 'true' }));
  } else {
    label.classList.add('leaf');
  }
  label.append(node.label);
  if (module && !node.parameter) {
    label.append(el('span', { className: 'class', textContent: module.name }));
  }
  th.append(label);
  tr.append(th);
  tr.node = node;
  const faults = (isOpen ? node.stated : node.allStated).filter(
    (one) => one.iteration === state.iteration);
  if (faults.length || list.some((i) => culprits.has(i))) tr.classList.add('hit');
  mapColumns.forEach((column, j) => {
    if (startsGroup(j)) tr.append(el('td', { className: 'gap' }));
    const cell = cellOf(list, column);
    tr.append(markStated(cell.best < 0 ? el('td') : drawCell(node, column, cell),
      node, column, faults));
  });
  return tr;
};

const isRowOut = (node) => node.all.some((i) =>
  iterationOf(i) === state.iteration && Math.max(T.sev[i], T.isev[i]) >= OUT) ||
  node.allStated.some((one) => one.iteration === state.iteration);

const drawMap = () => {
  const body = el('tbody');
  let left = 0;
  const visit = (node) => {
    if (onlyOut && !isRowOut(node)) return;
    if (body.rows.length < rowLimit) body.append(drawRow(node));
    else left++;
    if (opened.has(node)) node.list.forEach(visit);
  };
  if (root.own.length) visit(root);
  else root.list.forEach(visit);
  grid.replaceChildren(mapHead(), body);
  const first = grid.querySelector('td.cul') ?? body.querySelector('th');
  if (first) first.tabIndex = 0;
  if (left) {
    const more = button(`${count(left)} more rows`, () => { rowLimit += MOST_ROWS; drawMap(); });
    body.append(el('tr', {}, el('td', { colSpan: 30, className: 'more' }, more)));
  }
  if (!body.rows.length) {
    body.append(el('tr', {}, el('td', { className: 'more muted', colSpan: 30,
      textContent: 'Nothing is out of bounds in this iteration.' })));
  }
};

const rowOf = (node) => [...grid.tBodies[0].rows].find((tr) => tr.node === node);
const toggle = (node, open) => {
  if (!node.list.length || opened.has(node) === open) return;
  if (open) opened.add(node);
  else opened.delete(node);
  drawMap();
  focusIn(rowOf(node)?.cells[0]);
};
const focusIn = (cell) => {
  if (!cell) return;
  for (const other of grid.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  cell.tabIndex = 0;
  cell.focus();
};
const cellTip = (td) => {
  const { tensor, isolated, n, out, place } = td.dataset;
  const named = place === undefined ? '' : statedWords(stated.filter((one) =>
    String(one.place) === place));
  if (tensor === undefined) return named;
  return (named && named + '\n') + tensorWords(tensor) + (isolated ? `\nisolated: ${isolatedWords(tensor)}` : '') +
    (n > 1 ? `\nworst of ${n} here, ${out} out of bounds` : '');
};

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const canHold = (cell) => cell &&
  (cell.tagName === 'TH' || 'tensor' in cell.dataset || 'place' in cell.dataset);
// The nearest cell that way. A row that has none in this column is passed over.
const neighbour = (cell, [down, across]) => {
  const rows = [...grid.tBodies[0].rows];
  let r = rows.indexOf(cell.parentElement) + down;
  let c = cell.cellIndex + across;
  while (rows[r]?.cells[c] && !canHold(rows[r].cells[c])) {
    r += down;
    c += across;
  }
  return rows[r]?.cells[c];
};
// A tensor in the drawer; a culprit without one where the page tells of it.
const openCell = (cell) => {
  if ('place' in cell.dataset) {
    const place = $('place-' + cell.dataset.place);
    if (place) {
      if (place.tagName === 'DETAILS') place.open = true;
      return place.scrollIntoView();
    }
  }
  if ('tensor' in cell.dataset) go({ tensor: +cell.dataset.tensor });
};
const mapEvents = () => {
  grid.addEventListener('click', (event) => {
    const cell = event.target.closest('td[data-tensor], td[data-place]');
    if (cell) return openCell(cell);
    const head = event.target.closest('tbody th');
    if (head) toggle(head.parentElement.node, !opened.has(head.parentElement.node));
  });
  grid.addEventListener('mousemove', (event) => {
    const cell = event.target.closest('td[data-tensor], td[data-place]');
    if (cell) showTip(cellTip(cell), event.clientX, event.clientY);
    else hideTip();
  });
  grid.addEventListener('mouseleave', hideTip);
  grid.addEventListener('focusout', hideTip);
  grid.addEventListener('keydown', (event) => {
    const cell = event.target.closest('tbody td[data-tensor], tbody td[data-place], tbody th');
    if (!cell) return;
    const node = cell.parentElement.node;
    const isHead = cell.tagName === 'TH';
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      if (isHead) toggle(node, !opened.has(node));
      else openCell(cell);
      return;
    }
    if (isHead && node.list.length && event.key === 'ArrowRight' && !opened.has(node)) {
      event.preventDefault();
      return toggle(node, true);
    }
    if (isHead && event.key === 'ArrowLeft') {
      event.preventDefault();
      if (opened.has(node) && node.list.length) return toggle(node, false);
      return focusIn(node.up && rowOf(node.up)?.cells[0]);
    }
    if (event.key === 'Home') {
      event.preventDefault();
      hideTip();
      return focusIn(cell.parentElement.cells[0]);
    }
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const next = neighbour(cell, step);
    if (!canHold(next)) return;
    focusIn(next);
    if (next.tagName === 'TH') return hideTip();
    const box = next.getBoundingClientRect();
    showTip(cellTip(next), box.right, box.bottom);
  });
};

const mapTools = () => {
  const tool = (text, action) => button(text, () => { rowLimit = MOST_ROWS; action(); drawMap(); });
  const only = tool('Only what is out', () => {
    onlyOut = !onlyOut;
    only.ariaPressed = String(onlyOut);
  });
  only.ariaPressed = 'false';
  const box = $('maptools');
  box.append(
    tool(culprits.size || stated.length ? 'Where it starts' : 'Short', openFaults),
    tool('Layers', () => openTo(1)), tool('Modules', () => openTo(3)),
    tool('Everything', () => openTo(99)), only,
    el('span', { className: 'muted', textContent: 'Numbers are headroom: error / bound. A bar ' +
      'below: the share that is out. Arrow keys move, Enter opens.' }));
  box.hidden = false;
};
