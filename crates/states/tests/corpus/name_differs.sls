the id:
  test.nop:
    - name: the name
by name:
  test.nop:
    - require:
      - test: the name
by id:
  test.nop:
    - require:
      - test: the id
