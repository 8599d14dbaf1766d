.defaults: &defaults
  test.nop: []
one: &one
  test.configurable_test_state:
    - changes: &c False
two:
  test.configurable_test_state:
    - changes: *c
