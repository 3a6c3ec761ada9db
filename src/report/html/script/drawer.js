// One tensor, beside everything else.
const drawer = $('drawer');
let returnTo = null; // what had the focus before
let lastShown = -1;

const linkTo = (i, text) => el('a', { href: '#tensor=' + keys[i], textContent: text });

// "decoder > layers.3 > mlp": each part finds all tensors below it.
const pathOf = (i) => {
  const parts = fqnOf(i).split('.');
  const out = [];
  parts.slice(0, -1).forEach((part, k) => {
    const prefix = parts.slice(0, k + 1).join('.');
    const made = button(part, () => {
      go({ find: prefix, verdict: '', role: '', only: '' });
      $('tensors').scrollIntoView();
    });
    made.title = `all tensors of ${prefix}`;
    out.push(made, '\u2009.\u2009');
  });
  return el('p', { className: 'path' }, ...out, parts[parts.length - 1]);
};

const legRows = (i) => {
  const body = el('tbody');
  const num = (text, more = '') => el('td', { className: 'num' + more, textContent: text });
  for (let j = legStart[i]; j < legStart[i + 1]; j++) {
    const headroom = legHeadroom(j);
    const [leg, statistic, checkable] = D.kinds[L.kind[j]];
    body.append(
      el('tr', {}, el('th', { scope: 'row', textContent: D.legs[leg] }),
        ...[L.e, L.b, L.z].map((column) => num(errorWords(value(column[j])))),
        num(checkable ? headroomWords(headroom) : '\u2013', checkable && headroom > 1 ? ' bad' : '')),
      el('tr', {}, el('td', { colSpan: 5, className: 'prov', textContent: provenanceWords(j) +
        (checkable ? '' : ' (too wide to judge by)') + (statistic ? `; by ${statistic}` : '') })));
  }
  return body;
};

const legTable = (i) => {
  if (!T.n[i]) {
    return el('p', { className: 'muted', textContent: D.legsOfClean ?
      'No leg judged it by numbers.' : 'Left out of a page of this size: see result.json.' });
  }
  const heads = ['leg', 'error', 'bound', 'noise', 'headroom'].map((text, k) =>
    el('th', { scope: 'col', textContent: text, className: k ? 'num' : '' }));
  return el('table', { className: 'small' }, el('thead', {}, el('tr', {}, ...heads)), legRows(i));
};

const factTable = (i) => {
  const table = el('table', { className: 'small facts' });
  const row = (name, ...content) => table.append(
    el('tr', {}, el('th', { scope: 'row', textContent: name }), el('td', {}, ...content)));
  row('verdict', el('i', { className: 'k s' + T.sev[i] }),
    mustBeEqual(i) ? `out: ${decidedBy(i)}` : D.severity[T.sev[i]]);
  if (mustBeEqual(i)) {
    row('headroom', `${headroomWords(value(T.h[i]))}: within its bound, which is not what decides`);
  } else if (!NOT_NUMBERS.has(T.sev[i])) {
    row('headroom', headroomOf(i) + (legNameOf(i) ? ` in ${legNameOf(i)}` : ''));
  }
  const [culprit] = D.causes[T.cause[i]];
  if (causeWords(i)) {
    const first = culprit >= 0 ? D.culprits[culprit] : -1;
    const names = first >= 0 && first !== i ? [': ', linkTo(first, shownName(first))] : [];
    row('cause', causeWords(i), ...names);
  }
  row('role', `${roleOf(i)} ${argOf(i)}`);
  row('when', `iteration ${iterationOf(i)}, ${passOf(i)}, call ${callOf(i)}, place ${i}`);
  if (D.forms[T.form[i]]) row('shape', D.forms[T.form[i]]);
  if (T.isev[i]) row('isolated', el('i', { className: 'k s' + T.isev[i] }), isolatedWords(i));
  if (T.ranks[i]) row('faulty on', D.ranks[T.ranks[i]]);
  const [copies, differing, axes, worst] = D.copies[T.copies[i]];
  if (copies) {
    row('copies', differing ? `${differing} of ${copies} differ by up to ${worst}` +
      (axes ? ` along ${axes}` : '') : `${copies}, all equal`);
  }
  if (D.reasons[T.why[i]]) row('reason', D.reasons[T.why[i]]);
  const module = modules.get(fqnOf(i)) ??
    modules.get(fqnOf(i).slice(0, Math.max(0, fqnOf(i).lastIndexOf('.'))));
  if (module) {
    row('module', module.name, ...(module.file ?
      [el('br'), copyable(`${module.file}:${module.line}`)] : []));
  }
  return table;
};

const copyable = (text) => {
  const made = el('button', { type: 'button', className: 'copy', textContent: 'copy' });
  const code = el('code', { textContent: text });
  made.addEventListener('click', () => copyFrom(code, made));
  return el('span', { className: 'cmd' }, code, made);
};
const copyFrom = async (code, made) => {
  try {
    await navigator.clipboard.writeText(code.textContent);
    made.textContent = 'copied';
  } catch { // not allowed here: selected, so that one key copies it
    getSelection().selectAllChildren(code);
    made.textContent = 'selected';
  }
};

const shell = (text) => (/^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);
const inspectCommand = (i) => (oddNames.has(T.fqn[i]) || !fqnOf(i) ?
  el('p', { className: 'muted', textContent: fqnOf(i) ? 'Its name holds characters that are ' +
    'shown as escapes here: result.json has it as it is.' : '' }) :
  copyable(`ttrace inspect ${shell(D.candidate)} ${shell(fqnOf(i))}`));

// Where the reader came from, or, if that was drawn anew, the tensor's cell of
// the map, or where the map is entered.
const giveFocusBack = () => {
  const back = [returnTo, grid.querySelector(`td[data-tensor="${lastShown}"]`),
    grid.querySelector('[tabindex="0"]')];
  back.find((one) => one?.isConnected && one !== document.body)?.focus();
};

const drawDrawer = () => {
  const i = state.tensor;
  if (i < 0) {
    if (!drawer.hidden) {
      drawer.hidden = true;
      giveFocusBack();
    }
    return;
  }
  if (drawer.hidden) returnTo = document.activeElement;
  lastShown = i;
  const hadFocus = drawer.contains(document.activeElement);
  const same = [];
  for (let k = 0; k < N && same.length < 24; k++) {
    if (T.fqn[k] === T.fqn[i] && T.it[k] === T.it[i]) same.push(k);
  }
  const others = same.map((k) => el('li', {}, el('i', { className: 'k s' + T.sev[k] }),
    k === i ? el('b', { textContent: `${roleOf(k)} ${argOf(k)}` }) :
      linkTo(k, `${roleOf(k)} ${argOf(k)}`)));
  const twins = D.its.filter((it) => it !== iterationOf(i)).slice(0, 12).flatMap((it) => {
    const key = keys[i].split('/');
    key[2] = it;
    const twin = byKey.get(key.join('/'));
    return twin === undefined ? [] : [linkTo(twin, it), ' '];
  });
  const h3 = (text) => el('h3', { textContent: text });
  drawer.replaceChildren(
    el('button', { type: 'button', className: 'close', textContent: 'Close',
      onclick: () => go({ tensor: -1 }) }),
    el('p', { className: 'muted', textContent: causeWords(i) }),
    el('h2', { className: 'name', textContent: shownName(i) }), pathOf(i), factTable(i),
    h3('Legs'), legTable(i), h3('In the order of execution'),
    el('p', { title: 'left and right arrow keys' }, i ? linkTo(i - 1, '\u2190 before') : '', ' \u2003 ',
      i < N - 1 ? linkTo(i + 1, 'after \u2192') : ''),
    ...(twins.length ? [h3('In other iterations'), el('p', {}, ...twins)] : []),
    h3('The same name, this iteration'), el('ul', { className: 'plain' }, ...others),
    h3('Read its values'), inspectCommand(i));
  const wasHidden = drawer.hidden;
  drawer.hidden = false;
  drawer.scrollTop = 0;
  // What had it was drawn anew.
  if (wasHidden || hadFocus) drawer.focus({ preventScroll: true });
};

// Tab stays inside, arrows go to the neighbours in the order of execution; Escape
// is the whole page's.
drawer.addEventListener('keydown', (event) => {
  const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (across && !event.altKey && !event.ctrlKey && !event.metaKey) {
    const to = state.tensor + across;
    event.preventDefault();
    if (to >= 0 && to < N) go({ tensor: to }, 'replaceState');
    return;
  }
  if (event.key !== 'Tab') return;
  const stops = [...drawer.querySelectorAll('a[href], button')];
  const end = stops[event.shiftKey ? 0 : stops.length - 1];
  const isAtEnd = document.activeElement === end ||
    (event.shiftKey && document.activeElement === drawer);
  if (!isAtEnd) return;
  event.preventDefault();
  stops[event.shiftKey ? stops.length - 1 : 0].focus();
});
