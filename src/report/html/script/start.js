// Everything is drawn once, and again where what it shows changed.
const iterationBar = $('iterations');
const iterationTools = () => {
  if (D.its.length < 2) return;
  if (D.its.length > 8) {
    const box = el('select', { ariaLabel: 'Iteration' },
      ...D.its.map((it) => el('option', { value: it, textContent: it })));
    box.addEventListener('input', () => go({ iteration: +box.value, tensor: -1 }));
    iterationBar.append('iteration ', box);
  } else {
    iterationBar.append('iteration ', ...D.its.map((it) =>
      button(it, () => go({ iteration: it, tensor: -1 }))));
  }
  for (const words of document.querySelectorAll('[data-iteration]')) {
    words.replaceChildren(button(words.textContent, () =>
      go({ iteration: +words.dataset.iteration, tensor: -1 })));
  }
};
const showIteration = () => {
  for (const one of document.querySelectorAll('#iterations button, [data-iteration] button')) {
    one.ariaPressed = String(+one.textContent === state.iteration);
  }
  const box = iterationBar.querySelector('select');
  if (box) box.value = state.iteration;
};

drawers.push((changed) => {
  if (!N) return;
  if (changed.has('iteration')) {
    zoom = null;
    showIteration();
    drawMap();
  }
  if (changed.has('iteration') || changed.has('tensor')) drawDepth();
  if (changed.has('tensor')) {
    drawDrawer();
    for (const row of list.tBodies[0].rows) {
      row.classList.toggle('sel', +row.dataset.tensor === state.tensor);
    }
  }
  if (['find', 'role', 'verdict', 'only'].some((name) => changed.has(name))) {
    showFilters();
    drawList();
  }
});

addEventListener('popstate', () => {
  if (location.hash.includes('=') || location.hash === '') update(readAddress());
});
addEventListener('keydown', (event) => {
  if (event.key === 'Escape') {
    hideTip();
    if (state.tensor >= 0) go({ tensor: -1 });
  }
  if (event.key === '/' && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) {
    event.preventDefault();
    findBox.focus();
  }
});
// Another tensor, with the filters as they are.
document.addEventListener('click', (event) => {
  const link = event.target.closest('a[href^="#tensor="]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go({ tensor: tensorOfKey(link.getAttribute('href').slice('#tensor='.length)) });
});
// Sections are reached without losing what the address says of the view.
document.querySelector('nav').addEventListener('click', (event) => {
  const to = event.target.closest('a');
  if (!to) return;
  event.preventDefault();
  document.querySelector(to.getAttribute('href')).scrollIntoView();
});
// Links that were written without the keys of this page.
for (const link of document.querySelectorAll('[data-tensor]')) {
  if (link.tagName === 'A') link.setAttribute('href', '#tensor=' + keys[link.dataset.tensor]);
}
for (const copy of document.querySelectorAll('.copy')) {
  copy.hidden = false;
  copy.addEventListener('click', () => copyFrom(copy.previousElementSibling, copy));
}

if (N) {
  iterationTools();
  openFaults();
  mapEvents();
  mapTools();
  depthEvents();
  tableTools();
  Object.assign(state, readAddress());
  showIteration();
  showFilters();
  drawMap();
  drawDepth();
  drawList();
  drawDrawer();
}
