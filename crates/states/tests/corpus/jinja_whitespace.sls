{%- set a = 1 -%}
one:
  test.nop:
    - names:
      {%- for i in range(3) %}
      - n{{ i }}
      {%- endfor %}
{#- a comment -#}
