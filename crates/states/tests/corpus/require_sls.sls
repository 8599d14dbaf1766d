include:
  - inc.one
after:
  test.nop:
    - require:
      - sls: inc.one
