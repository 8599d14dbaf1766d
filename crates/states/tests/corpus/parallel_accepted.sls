one:
  test.nop:
    - fire_event: True
    - reload_modules: True
