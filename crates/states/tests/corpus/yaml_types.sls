octal {{ {'m': 1}.m }}:
  test.nop:
    - name: x
values:
  test.configurable_test_state:
    - changes: no
    - result: yes
on off:
  test.configurable_test_state:
    - changes: off
    - result: on
