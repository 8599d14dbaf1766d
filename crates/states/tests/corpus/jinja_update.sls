{% set base = {'a': 1, 'b': {'c': 2}} %}
{% do base.update({'a': 5, 'd': []}) %}
{% do base['d'].append('z') %}
{% for key, value in base.items() %}
{{ key }}:
  test.configurable_test_state:
    - name: {{ key }} {{ value }}
    - changes: {{ value == 5 }}
{% endfor %}
