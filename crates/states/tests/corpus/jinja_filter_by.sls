{% set none = salt['grains.filter_by']({'Debian': {'a': 'one'}}, merge='') %}
{% set nothing = salt['grains.filter_by']({'Debian': {'a': 'two'}}, merge=salt['pillar.get']('nowhere:lookup')) %}
{% set over = salt['grains.filter_by']({'Debian': {'a': 'x'}}, merge={'b': 'three'}) %}
{% set first = salt['grains.filter_by']({'Deb*': 'four', 'Debian': 'x'}) %}
{% set empty = salt['grains.filter_by']({'Debian': None, 'default': 'five'}) %}
{% set base = salt['grains.filter_by']({'Debian': {'a': 'six'}, 'all': {'a': 'x', 'b': 'seven'}}, base='all') %}
{% for id in [none.a, nothing.a, over.b, first, empty, base.a, base.b] %}
{{ id }}:
  test.nop: []
{% endfor %}
