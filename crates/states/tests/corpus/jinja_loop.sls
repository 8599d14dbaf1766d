{% for name in ['a', 'b', 'c'] %}
state {{ name }}:
  test.nop:
    - require:
      - test: base
{% endfor %}
base: test.succeed_with_changes
