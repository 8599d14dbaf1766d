{% set one = {'a': {'x': 1}, 'l': [1]} %}
{% do salt['defaults.merge'](one, {'a': {'y': 2}, 'l': [1, 2]}) %}
{% set two = {'a': {'x': 1}} %}
{% set copy = salt['defaults.merge'](two, {'a': {'y': 2}}, in_place=False) %}
{% set lists = salt['slsutil.merge']({'l': [1]}, {'l': [1, 2]}, merge_lists=True) %}
{% set three = {'a': {'x': 1}} %}
{% do salt['slsutil.merge'](three, {'a': {'y': 2}}) %}
{% set four = {'a': {'x': 1}} %}
{% do salt['slsutil.update'](four, {'a': {'y': 2}}) %}
{% set over = salt['slsutil.merge']({'a': {'x': 1}}, {'a': {'y': 2}}, strategy='overwrite') %}
{% set nodes = {'n': {'i': 1}} %}
{% do salt['defaults.update'](nodes, {'d': 2}) %}
{% for value in [one, two, copy, lists, three, four, over, nodes] %}
"{{ value }}":
  test.nop: []
{% endfor %}
