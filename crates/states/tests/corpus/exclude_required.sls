include:
  - inc.one
exclude:
  - id: inc one
own:
  test.nop:
    - require:
      - test: inc one
