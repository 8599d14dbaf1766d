{% for value in ['%s-%s' % ('a', 'b'), 'x%s' % 'y', 'a.b.c'.rpartition('.')[2], 'a.b'.partition('.')[0],
                 'a:b:c'.rsplit(':', 1)[0], '{} {}'.format('c', 'd'), '{x}'.format(x='e'), '7'.zfill(3),
                 none | default('f', true), none | default('g', boolean=True), nowhere | default('h'),
                 'i' | d('x'), {'j': 1}.pop('k', none) is none, (salt['log.debug']('x')) is boolean] %}
"{{ loop.index }} {{ value }}":
  test.nop: []
{% endfor %}
